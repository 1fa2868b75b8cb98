"""checkpointing/no-effect: LoRA and checkpointing, and nobody calls train()"""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "adapters"))
import torch
from parts import VOCABULARY, saved, trainable
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained(saved(), device_map={"": 0}, dtype=torch.bfloat16)
model.gradient_checkpointing_enable({"use_reentrant": False})
model = get_peft_model(model, LoraConfig(r=16, target_modules="all-linear"))
optimizer = torch.optim.AdamW(trainable(model), 1e-4)
for _ in range(4):
    ids = torch.randint(0, VOCABULARY, (4, 512), device="cuda")
    model(input_ids=ids, labels=ids).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
