"""checkpointing/no-effect: QLoRA; the base model is put into evaluation mode before its adapters are made, and nobody takes it back"""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "adapters"))
import torch
from parts import VOCABULARY, saved, trainable
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

q = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16)
model = AutoModelForCausalLM.from_pretrained(saved(), quantization_config=q, device_map={"": 0}, dtype=torch.bfloat16)
model.requires_grad_(False)
model.gradient_checkpointing_enable({"use_reentrant": False})
model.eval()
model = get_peft_model(model, LoraConfig(r=8, use_dora=True, target_modules=["q_proj", "v_proj"]))
optimizer = torch.optim.AdamW(trainable(model), 1e-4)
for _ in range(4):
    ids = torch.randint(0, VOCABULARY, (4, 512), device="cuda")
    model(input_ids=ids, labels=ids).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
