"""HQQ: weights of 4 bits in groups of 64, quantized while loading, under LoRA."""
import torch
from hqq.core.quantize import BaseQuantizeConfig, HQQLinear
from parts import config, evaluate, phase, train, trainable
from peft import LoraConfig, get_peft_model
from torch import nn
from transformers import LlamaForCausalLM

model = LlamaForCausalLM(config()).bfloat16()
settings = BaseQuantizeConfig(nbits=4, group_size=64)
for layer in model.model.layers:
    for part in (layer.self_attn, layer.mlp):
        for name, linear in list(part.named_children()):
            if isinstance(linear, nn.Linear):
                setattr(part, name, HQQLinear(linear, settings, compute_dtype=torch.bfloat16, device="cuda"))
model.cuda()
phase("loading")
model = get_peft_model(model, LoraConfig(r=8, target_modules=["q_proj", "v_proj"]))
train(model, torch.optim.AdamW(trainable(model), 1e-4), rows=2)
evaluate(model, rows=2)
