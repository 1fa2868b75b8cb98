"""TRL's SFTTrainer on prompts and completions: NF4, an adapter with rank patterns, a paged optimizer of 8 bits, accumulation, padding to the longest."""
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
train, evaluate = dataset(lambda: {"prompt": sentence(r, 40, 300), "completion": " " + sentence(r, 20, 400)}, 96, 64, scaled(4))
args = SFTConfig("out", max_steps=4, per_device_train_batch_size=scaled(2), per_device_eval_batch_size=scaled(2), gradient_accumulation_steps=2, max_length=640, bf16=True,
                 gradient_checkpointing=True, optim="paged_adamw_8bit", eval_strategy="steps", eval_steps=2, save_steps=4, report_to=[], logging_steps=1, disable_tqdm=True)
SFTTrainer(model, args, train_dataset=Dataset.from_list(train), eval_dataset=Dataset.from_list(evaluate), processing_class=tokenizer(),
           peft_config=LoraConfig(r=8, rank_pattern={"down_proj": 64}, target_modules="all-linear"), callbacks=[report_phases()]).train()
