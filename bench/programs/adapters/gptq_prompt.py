"""A checkpoint in GPTQ's format, 4 bits in groups of 128, as transformers loads it through AutoRound; a learned prompt before it."""
import json
import os

import torch
from parts import evaluate, phase, saved, train, trainable
from peft import PromptTuningConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoRoundConfig

BITS, GROUP = 4, 128


def packed(folder):
    """What GPTQ would have written: the linear layers of the blocks as packed integers with scales."""
    file = os.path.join(folder, "model.safetensors")
    found = {}
    for name, weight in load_file(file).items():
        if weight.dim() != 2 or ".layers." not in name:
            found[name] = weight.half()
            continue
        out, into = weight.shape
        layer = name.removesuffix("weight")
        found[layer + "qweight"] = torch.randint(-(2**31), 2**31 - 1, (into * BITS // 32, out), dtype=torch.int32)
        found[layer + "qzeros"] = torch.full((into // GROUP, out * BITS // 32), 0x77777777, dtype=torch.int32)
        found[layer + "scales"] = torch.full((into // GROUP, out), 0.002, dtype=torch.float16)
        found[layer + "g_idx"] = (torch.arange(into) // GROUP).int()
    save_file(found, file, {"format": "pt"})
    config = os.path.join(folder, "config.json")
    with open(config) as file:
        settings = json.load(file)
    settings["quantization_config"] = {"quant_method": "gptq", "bits": BITS, "group_size": GROUP, "sym": True, "desc_act": False}
    with open(config, "w") as file:
        json.dump(settings, file)
    return folder


model = AutoModelForCausalLM.from_pretrained(packed(saved()), quantization_config=AutoRoundConfig(backend="torch"), device_map={"": 0}, dtype=torch.float16)
phase("loading")
model = get_peft_model(model, PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=16))
train(model, torch.optim.AdamW(trainable(model), 1e-4), rows=2)
evaluate(model, rows=2)
