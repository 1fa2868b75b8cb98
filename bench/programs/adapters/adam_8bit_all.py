"""All weights trained in bfloat16 by bitsandbytes' Adam of 8 bits."""
import tempfile

import bitsandbytes as bnb
import torch
from parts import evaluate, phase, saved, train
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained(saved(), dtype=torch.bfloat16, device_map="cuda")
phase("loading")
train(model, bnb.optim.AdamW8bit(model.parameters(), 1e-5))
evaluate(model)
model.save_pretrained(tempfile.mkdtemp())
phase("saving")
