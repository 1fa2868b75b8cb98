"""checkpointing/no-effect or another word: reentrant checkpointing over a frozen embedding, the head is trained"""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "adapters"))
import torch
from parts import saved, train, trainable
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained(saved(), device_map={"": 0}, dtype=torch.bfloat16)
model = get_peft_model(model, LoraConfig(r=16, target_modules=["q_proj", "v_proj"], modules_to_save=["lm_head"]))
from torch.utils import checkpoint

inner = model.base_model.model.model
for layer in inner.layers:
    layer.gradient_checkpointing, layer._gradient_checkpointing_func = True, lambda f, *a, **k: checkpoint.checkpoint(f, *a, use_reentrant=True)
train(model, torch.optim.AdamW(trainable(model), 1e-4), rows=4)
