"""The same, done well: a model without memory gets the tensors that safetensors read onto the device."""
import glob

import torch
from parts import config, evaluate, phase, saved, train, trainable
from peft import LoraConfig, get_peft_model
from safetensors import safe_open
from transformers import LlamaForCausalLM

folder = saved()
with torch.device("meta"):
    model = LlamaForCausalLM(config())
weights = {}
for file in glob.glob(folder + "/*.safetensors"):
    with safe_open(file, "pt", device="cuda:0") as opened:
        for name in opened.keys():  # noqa: SIM118
            weights[name] = opened.get_tensor(name)
model.load_state_dict(weights, strict=False, assign=True)
del weights
model.model.rotary_emb = type(model.model.rotary_emb)(config(), device="cuda")
phase("loading")
model = get_peft_model(model, LoraConfig(r=8, target_modules=["q_proj", "v_proj"]))
train(model, torch.optim.AdamW(trainable(model), 1e-4), rows=2)
evaluate(model, rows=2)
