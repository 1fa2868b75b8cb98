"""Weights read by safetensors straight onto the device, beside the model that is there already, and kept in a variable."""
import glob

import torch
from parts import config, evaluate, phase, saved, train, trainable
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file
from transformers import LlamaForCausalLM

folder = saved()
with torch.device("cuda"):
    model = LlamaForCausalLM(config()).bfloat16()
phase("on the device")
weights = {}
for file in glob.glob(folder + "/*.safetensors"):
    weights.update(load_file(file, device="cuda"))
model.load_state_dict(weights, strict=False)
phase("loading")
model = get_peft_model(model, LoraConfig(r=8, target_modules=["q_proj", "v_proj"]))
train(model, torch.optim.AdamW(trainable(model), 1e-4), rows=2)
evaluate(model, rows=2)
