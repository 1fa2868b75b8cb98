"""LoRA of rank 64 in bfloat16 with bitsandbytes' paged AdamW of 32 bits."""
import bitsandbytes as bnb
import torch
from parts import evaluate, phase, saved, train, trainable
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained(saved(), dtype=torch.bfloat16, device_map="auto")
phase("loading")
model = get_peft_model(model, LoraConfig(r=64, target_modules="all-linear"))
train(model, bnb.optim.PagedAdamW32bit(trainable(model), 1e-4), rows=2)
evaluate(model, rows=2)
