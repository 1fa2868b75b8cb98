"""TRL's SFTTrainer: QLoRA on packed texts, with checkpointing, a paged optimizer of 8 bits and an evaluation."""
import random

import torch
from datasets import Dataset
from parts import dataset, report_phases, saved, scaled, sentence, tokenizer
from peft import LoraConfig
from transformers import AutoModelForCausalLM, BitsAndBytesConfig
from trl import SFTConfig, SFTTrainer

quantized = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype=torch.bfloat16)
model = AutoModelForCausalLM.from_pretrained(saved(), quantization_config=quantized, device_map={"": 0}, dtype=torch.bfloat16)
r = random.Random(0)
train, evaluate = dataset(lambda: {"text": sentence(r, 40, 400)}, 200, 160, 3 * scaled(2))
args = SFTConfig("out", max_steps=4, per_device_train_batch_size=scaled(2), per_device_eval_batch_size=scaled(2), packing=True, packing_strategy="wrapped", max_length=512,
                 eval_strategy="steps", eval_steps=2, save_steps=4, bf16=True, gradient_checkpointing=True, optim="paged_adamw_8bit", report_to=[],
                 logging_steps=1, disable_tqdm=True)
SFTTrainer(model, args, train_dataset=Dataset.from_list(train), eval_dataset=Dataset.from_list(evaluate), processing_class=tokenizer(),
           peft_config=LoraConfig(r=16, target_modules="all-linear"), callbacks=[report_phases()]).train()
