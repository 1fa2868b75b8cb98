"""DPO of an adapter on NF4 whose reference is the model without it"""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "adapters"))
import random

import torch
from datasets import Dataset
from parts import saved, sentence, tokenizer
from peft import LoraConfig
from transformers import AutoModelForCausalLM, BitsAndBytesConfig
from trl import DPOConfig, DPOTrainer

q = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16)
model = AutoModelForCausalLM.from_pretrained(saved(), quantization_config=q, device_map={"": 0}, dtype=torch.bfloat16)
r = random.Random(1)
rows = [{"prompt": sentence(r, 60, 100), "chosen": sentence(r, 100, 200), "rejected": sentence(r, 100, 200)} for _ in range(24)]
args = DPOConfig("out", max_steps=4, per_device_train_batch_size=2, bf16=True, max_length=256, report_to=[], optim="paged_adamw_8bit", save_strategy="no")
DPOTrainer(model, None, args, train_dataset=Dataset.from_list(rows), processing_class=tokenizer(), peft_config=LoraConfig(r=16, target_modules="all-linear")).train()
