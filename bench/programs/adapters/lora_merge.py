"""LoRA, then merge_and_unload, an evaluation of the merged model, and its weights saved."""
import tempfile

import torch
from parts import evaluate, phase, saved, train, trainable
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained(saved(), dtype=torch.bfloat16).cuda()
phase("loading")
model = get_peft_model(model, LoraConfig(r=32, target_modules="all-linear"))
train(model, torch.optim.AdamW(trainable(model), 1e-4), rows=2)
evaluate(model, rows=2)
model = model.merge_and_unload()
phase("merging")
evaluate(model, rows=2)
model.save_pretrained(tempfile.mkdtemp())
phase("saving")
