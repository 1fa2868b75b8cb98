"""cause: growth/kv-cache
memory: 2GiB
why: keys and values of two hundred texts at once, which grow with each word.
"""
import torch
from transformers import GPT2Config, GPT2LMHeadModel

config = GPT2Config(n_layer=4, n_head=8, n_embd=1024, n_positions=2048, vocab_size=8000)
model = GPT2LMHeadModel(config).cuda().eval()
with torch.inference_mode():
    ids = torch.randint(0, 8000, (200, 8), device="cuda")
    past = None
    for _ in range(400):
        out = model(ids, past_key_values=past, use_cache=True)
        past = out.past_key_values
        ids = out.logits[:, -1:].argmax(-1)
