"""HQQ of all linear layers of the body, LoRA above"""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "adapters"))
import torch
from hqq.core.quantize import BaseQuantizeConfig, HQQLinear
from parts import config, train, trainable
from peft import LoraConfig, get_peft_model
from transformers import LlamaForCausalLM

model = LlamaForCausalLM(config(num_hidden_layers=8)).bfloat16()
for layer in model.model.layers:
    for part in (layer.self_attn, layer.mlp):
        for name, linear in list(part.named_children()):
            if isinstance(linear, torch.nn.Linear):
                setattr(part, name, HQQLinear(linear, BaseQuantizeConfig(nbits=4, group_size=64), compute_dtype=torch.bfloat16, device="cuda"))
model.cuda()
model = get_peft_model(model, LoraConfig(r=8, target_modules=["q_proj", "v_proj"]))
train(model, torch.optim.AdamW(trainable(model), 1e-4), rows=2)
