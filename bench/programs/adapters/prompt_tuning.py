"""Prompt tuning: 32 virtual tokens before each text."""
import torch
from parts import evaluate, phase, saved, train, trainable
from peft import PromptTuningConfig, get_peft_model
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained(saved(), dtype=torch.bfloat16, device_map="auto")
phase("loading")
model = get_peft_model(model, PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=32))
train(model, torch.optim.AdamW(trainable(model), 1e-2), rows=2)
evaluate(model, rows=2)
