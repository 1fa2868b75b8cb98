"""adapters/all-trainable: DoRA, and every parameter with 'layers' in its name is switched on"""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "adapters"))
import torch
from parts import saved, train, trainable
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained(saved(), device_map={"": 0}, dtype=torch.bfloat16)
model.gradient_checkpointing_enable({"use_reentrant": False})
model = get_peft_model(model, LoraConfig(r=8, use_dora=True, target_modules="all-linear"))
for name, it in model.named_parameters():
    it.requires_grad_("layers" in name)
train(model, torch.optim.AdamW(trainable(model), 1e-4), rows=1)
