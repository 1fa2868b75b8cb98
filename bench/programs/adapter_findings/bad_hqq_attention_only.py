"""weights/not-quantized: a loop of the script's own packs the attention only"""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "adapters"))
import torch
from hqq.core.quantize import BaseQuantizeConfig, HQQLinear
from parts import config, train, trainable
from peft import LoraConfig, get_peft_model
from transformers import LlamaForCausalLM

model = LlamaForCausalLM(config()).bfloat16()
for layer in model.model.layers:
    for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
        setattr(layer.self_attn, name, HQQLinear(getattr(layer.self_attn, name), BaseQuantizeConfig(nbits=4, group_size=64), compute_dtype=torch.bfloat16, device="cuda"))
model.cuda()
model = get_peft_model(model, LoraConfig(r=8, target_modules=["q_proj", "v_proj"]))
train(model, torch.optim.AdamW(trainable(model), 1e-4), rows=2)
