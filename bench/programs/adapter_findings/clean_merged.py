"""LoRA in bfloat16, merged at the end, evaluated"""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "adapters"))
import torch
from parts import evaluate, saved, train, trainable
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained(saved(), device_map={"": 0}, dtype=torch.bfloat16)
model = get_peft_model(model, LoraConfig(r=16, target_modules="all-linear"))
train(model, torch.optim.AdamW(trainable(model), 1e-4), rows=2)
evaluate(model.merge_and_unload(), rows=2)
