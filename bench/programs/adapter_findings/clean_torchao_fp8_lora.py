"""torchao's float8 weights under LoRA"""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "adapters"))
import torch
from parts import saved, train, trainable
from peft import LoraConfig, get_peft_model
from torchao.quantization import Float8WeightOnlyConfig
from transformers import AutoModelForCausalLM, TorchAoConfig

model = AutoModelForCausalLM.from_pretrained(saved(), quantization_config=TorchAoConfig(Float8WeightOnlyConfig()), device_map={"": 0}, dtype=torch.bfloat16)
model.requires_grad_(False)
model = get_peft_model(model, LoraConfig(r=16, target_modules=["q_proj", "v_proj"]))
train(model, torch.optim.AdamW(trainable(model), 1e-4))
