"""transformers' GPT-2 with its dropout; one batch is longer."""

import torch

from planted import STEPS, ended, size

from transformers import GPT2Config, GPT2LMHeadModel

model = GPT2LMHeadModel(GPT2Config(n_layer=4, n_embd=512, n_head=8)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
for step in range(STEPS):
    ids = torch.randint(0, 50257, (4, size(step, 128, 768)), device="cuda")
    optimizer.zero_grad()
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    optimizer.step()
    ended(step, loss, model)
