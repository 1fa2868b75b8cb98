"""DoRA, reentrant checkpointing with input gradients"""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "adapters"))
import torch
from parts import saved, train, trainable
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained(saved(), device_map={"": 0}, dtype=torch.bfloat16)
model.gradient_checkpointing_enable({"use_reentrant": True})
model.enable_input_require_grads()
model = get_peft_model(model, LoraConfig(r=16, use_dora=True, target_modules=["q_proj", "k_proj", "v_proj", "o_proj"]))
train(model, torch.optim.AdamW(trainable(model), 1e-4))
