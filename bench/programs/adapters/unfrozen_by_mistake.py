"""LoRA whose base is made trainable again by a line that was meant for the norms: all gradients and all of Adam's state are there."""
import torch
from parts import evaluate, phase, saved, train, trainable
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained(saved(), dtype=torch.bfloat16, device_map="auto")
phase("loading")
model = get_peft_model(model, LoraConfig(r=8, target_modules=["q_proj", "v_proj"]))
for parameter in model.parameters():
    parameter.requires_grad = True
train(model, torch.optim.AdamW(trainable(model), 1e-4), rows=2)
evaluate(model, rows=2)
