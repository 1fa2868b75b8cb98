"""TRL SFT, NF4 double quantization, checkpointing, paged 8-bit optimizer"""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "adapters"))
import random

import torch
from datasets import Dataset
from parts import saved, sentence, tokenizer
from peft import LoraConfig
from transformers import AutoModelForCausalLM, BitsAndBytesConfig
from trl import SFTConfig, SFTTrainer

q = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype=torch.bfloat16)
model = AutoModelForCausalLM.from_pretrained(saved(), quantization_config=q, device_map={"": 0}, dtype=torch.bfloat16)
r = random.Random(0)
rows = [{"text": sentence(r, 100, 300)} for _ in range(40)]
args = SFTConfig("out", max_steps=4, per_device_train_batch_size=4, bf16=True, max_length=512, gradient_checkpointing=True, optim="paged_adamw_8bit", report_to=[], save_strategy="no")
SFTTrainer(model, args, train_dataset=Dataset.from_list(rows), processing_class=tokenizer(), peft_config=LoraConfig(r=16, target_modules="all-linear")).train()
