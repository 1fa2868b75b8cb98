"""Weights in 32 bits beside the model in 16: loading needs three times what training needs. The number of layers is scaled, not the rows."""
import os

import torch
from parts import TIMES, VOCABULARY, config, phase, saved, trainable
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file
from transformers import LlamaForCausalLM

shape = config(num_hidden_layers=max(1, round(4 * TIMES)))
folder = saved(LlamaForCausalLM(shape), torch.float32)
weights = load_file(os.path.join(folder, "model.safetensors"), device="cuda")
model = LlamaForCausalLM(shape).bfloat16().cuda()
model.load_state_dict(weights, strict=False)
del weights
torch.cuda.empty_cache()
phase("loading")
model.gradient_checkpointing_enable({"use_reentrant": False})
model = get_peft_model(model, LoraConfig(r=8, target_modules=["q_proj", "v_proj"]))
model.train()
optimizer = torch.optim.AdamW(trainable(model), 1e-4)
for step in range(4):
    ids = torch.randint(0, VOCABULARY, (1, 256), device="cuda")
    model(input_ids=ids, labels=ids).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if step in (0, 3):
        phase("step %d" % (step + 1))
