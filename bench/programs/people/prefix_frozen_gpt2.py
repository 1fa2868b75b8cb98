"""A frozen GPT-2 of `transformers` with learned vectors before the text: only these and a small network train."""
import torch
import torch.nn.functional as F
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

BATCH, LENGTH, BEFORE = 8, 384, 64

torch.manual_seed(0)
gpt = GPT2LMHeadModel(GPT2Config(n_layer=12, n_embd=1024, n_head=16)).cuda().requires_grad_(False).train()
vectors = nn.Parameter(torch.randn(BEFORE, 1024, device="cuda") * 0.02)
network = nn.Sequential(nn.Linear(1024, 512), nn.Tanh(), nn.Linear(512, 1024)).cuda()
optimizer = torch.optim.AdamW([vectors, *network.parameters()], lr=1e-3)
for step in range(30):
    ids = torch.randint(0, 50257, (BATCH, LENGTH), device="cuda")
    before = network(vectors).expand(BATCH, -1, -1)
    hidden = torch.cat([before, gpt.transformer.wte(ids)], 1)
    logits = gpt(inputs_embeds=hidden, use_cache=False).logits[:, BEFORE - 1 : -1]
    loss = F.cross_entropy(logits.reshape(-1, logits.shape[-1]), ids.reshape(-1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(step, loss.item())
