"""All weights with bitsandbytes' AdamW of 8 bits, checkpointing"""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "adapters"))
import bitsandbytes as bnb
import torch
from parts import saved, train
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained(saved(), device_map={"": 0}, dtype=torch.bfloat16)
model.gradient_checkpointing_enable({"use_reentrant": False})
train(model, bnb.optim.AdamW8bit(model.parameters(), 1e-5))
