"""Loaded in float32, moved to the device, and only there made bfloat16: the weights are there in two precisions."""
import torch
from parts import evaluate, phase, saved, train, trainable
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained(saved(dtype=torch.float32), dtype=torch.float32)
model = model.to("cuda").to(torch.bfloat16)
phase("loading")
model = get_peft_model(model, LoraConfig(r=8, target_modules=["q_proj", "v_proj"]))
train(model, torch.optim.AdamW(trainable(model), 1e-4), rows=1)
evaluate(model, rows=1)
