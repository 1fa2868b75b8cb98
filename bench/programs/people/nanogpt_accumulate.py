"""nanoGPT's loop: bf16, fused AdamW, five small batches a step, estimate_loss() in between, weights tied."""
import math
import time
from contextlib import nullcontext

import torch
import torch.nn as nn
from torch.nn import functional as F

batch_size, block_size, accumulation = 16, 1024, 5
n_layer, n_head, n_embd, vocab = 12, 12, 768, 50304
device = "cuda"
ctx = torch.autocast("cuda", torch.bfloat16)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(n_embd, bias=False), nn.LayerNorm(n_embd, bias=False)
        self.qkv, self.proj = nn.Linear(n_embd, 3 * n_embd, bias=False), nn.Linear(n_embd, n_embd, bias=False)
        self.fc, self.fc2 = nn.Linear(n_embd, 4 * n_embd, bias=False), nn.Linear(4 * n_embd, n_embd, bias=False)

    def forward(self, x):
        b, t, c = x.size()
        q, k, v = (it.view(b, t, n_head, c // n_head).transpose(1, 2) for it in self.qkv(self.ln1(x)).split(n_embd, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).contiguous().view(b, t, c))
        return x + self.fc2(F.gelu(self.fc(self.ln2(x))))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, n_embd), nn.Embedding(block_size, n_embd)
        self.h = nn.ModuleList(Block() for _ in range(n_layer))
        self.ln_f, self.lm_head = nn.LayerNorm(n_embd, bias=False), nn.Linear(n_embd, vocab, bias=False)
        self.wte.weight = self.lm_head.weight

    def forward(self, idx, targets=None):
        x = self.wte(idx) + self.wpe(torch.arange(idx.size(1), device=idx.device))
        for block in self.h:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)


data = torch.randint(0, 50257, (2_000_000,))


def get_batch():
    ix = torch.randint(len(data) - block_size - 1, (batch_size,))
    x = torch.stack([data[i : i + block_size] for i in ix])
    y = torch.stack([data[i + 1 : i + 1 + block_size] for i in ix])
    return x.pin_memory().to(device, non_blocking=True), y.pin_memory().to(device, non_blocking=True)


@torch.no_grad()
def estimate_loss():
    model.eval()
    losses = torch.zeros(5)
    for k in range(5):
        with ctx:
            _, loss = model(*get_batch())
        losses[k] = loss.item()
    model.train()
    return losses.mean()


torch.manual_seed(1337)
model = GPT().to(device)
optimizer = torch.optim.AdamW(model.parameters(), 6e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
x, y = get_batch()
for it in range(30):
    for group in optimizer.param_groups:
        group["lr"] = 6e-4 * min(1, (it + 1) / 10) * 0.5 * (1 + math.cos(math.pi * it / 30))
    if it % 10 == 0:
        print("val", estimate_loss().item())
    start = time.time()
    for micro in range(accumulation):
        with ctx:
            logits, loss = model(x, y)
            loss = loss / accumulation
        x, y = get_batch()
        loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    print(it, loss.item() * accumulation, time.time() - start)
