"""DoRA: the norms of the adapted weights are computed in each forward pass."""
import torch
from parts import evaluate, phase, saved, train, trainable
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained(saved(), dtype=torch.bfloat16, device_map="auto")
phase("loading")
model = get_peft_model(model, LoraConfig(r=16, use_dora=True, target_modules=["q_proj", "v_proj", "down_proj"]))
train(model, torch.optim.AdamW(trainable(model), 1e-4), rows=2)
evaluate(model, rows=2)
model.merge_adapter()
phase("merging")
