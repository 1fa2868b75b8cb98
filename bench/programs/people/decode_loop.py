"""Decoding by hand with past_key_values: prefill, then one token at a time, sampling from the top 50."""

import torch
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(0)
model = GPT2LMHeadModel(GPT2Config(n_embd=1280, n_layer=36, n_head=20, n_positions=2048)).half().cuda()
model.eval()


@torch.no_grad()
def sample(prompt, n):
    out, past, ids = prompt, None, prompt
    for _ in range(n):
        res = model(ids, past_key_values=past, use_cache=True)
        past = res.past_key_values
        logits = res.logits[:, -1, :].float() / 0.8
        top, index = torch.topk(logits, 50)
        choice = torch.multinomial(torch.softmax(top, -1), 1)
        ids = index.gather(-1, choice)
        out = torch.cat([out, ids], 1)
    return out


for batch in range(2):
    prompt = torch.randint(50257, (24, 768), device="cuda")
    text = sample(prompt, 48)
    print(text.shape)
