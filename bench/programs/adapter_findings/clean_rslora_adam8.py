"""rank-stabilized LoRA in bfloat16 with AdamW of 8 bits"""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "adapters"))
import bitsandbytes as bnb
import torch
from parts import saved, train, trainable
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained(saved(), device_map={"": 0}, dtype=torch.bfloat16)
model = get_peft_model(model, LoraConfig(r=64, use_rslora=True, target_modules="all-linear"))
train(model, bnb.optim.AdamW8bit(trainable(model), 1e-4), rows=2)
