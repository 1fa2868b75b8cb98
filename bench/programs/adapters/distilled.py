"""TRL's distillation: a teacher in NF4 beside a student under LoRA, completions by `generate`."""
import random

import torch
from datasets import Dataset
from parts import config, dataset, report_phases, saved, scaled, sentence, tokenizer
from peft import LoraConfig
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, LlamaForCausalLM
from trl import DistillationConfig, DistillationTrainer

quantized = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16)
teacher = AutoModelForCausalLM.from_pretrained(saved(), quantization_config=quantized, device_map={"": 0}, dtype=torch.bfloat16)
student = AutoModelForCausalLM.from_pretrained(saved(LlamaForCausalLM(config(num_hidden_layers=6))), dtype=torch.bfloat16, device_map={"": 0})
r = random.Random(0)
rows, _ = dataset(lambda: {"prompt": sentence(r, 40, 160)}, 64, 64, scaled(4))
args = DistillationConfig("out", max_steps=4, per_device_train_batch_size=scaled(4), max_completion_length=48, generation_kwargs={"min_new_tokens": 48}, save_steps=4, bf16=True,
                          report_to=[], logging_steps=1, disable_tqdm=True)
DistillationTrainer(student, teacher, args, train_dataset=Dataset.from_list(rows), processing_class=tokenizer(),
                    peft_config=LoraConfig(r=16, target_modules="all-linear"), callbacks=[report_phases()]).train()
