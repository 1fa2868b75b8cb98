"""torchao's training in 8-bit floats: all weights are trained, their products are in float8."""
import torch
from parts import config, evaluate, phase, train
from torchao.float8 import convert_to_float8_training
from transformers import LlamaForCausalLM

model = LlamaForCausalLM(config(num_hidden_layers=6)).bfloat16().cuda()
convert_to_float8_training(model, module_filter_fn=lambda module, name: "lm_head" not in name)
phase("loading")
train(model, torch.optim.AdamW(model.parameters(), 1e-5))
evaluate(model)
