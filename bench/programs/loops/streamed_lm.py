"""A language model of one's own on a stream of tokens: IterableDataset, batches that are dicts, accumulation, evaluation in between."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, IterableDataset

device = "cuda" if torch.cuda.is_available() else "cpu"
vocab, block, n_layer, n_head, n_embd, batch, accumulate, max_iters = 32000, 1024, 12, 12, 768, 12, 4, 60


class Stream(IterableDataset):
    def __iter__(self):
        while True:
            ids = torch.randint(vocab, (block + 1,))
            yield {"input_ids": ids[:-1], "labels": ids[1:]}


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(n_embd), nn.LayerNorm(n_embd)
        self.qkv, self.proj = nn.Linear(n_embd, 3 * n_embd, bias=False), nn.Linear(n_embd, n_embd, bias=False)
        self.mlp = nn.Sequential(nn.Linear(n_embd, 4 * n_embd), nn.GELU(), nn.Linear(4 * n_embd, n_embd))

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (it.view(B, T, n_head, C // n_head).transpose(1, 2) for it in self.qkv(self.ln_1(x)).split(C, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(B, T, C))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, n_embd), nn.Embedding(block, n_embd)
        self.h, self.ln_f = nn.ModuleList(Block() for _ in range(n_layer)), nn.LayerNorm(n_embd)
        self.head = nn.Linear(n_embd, vocab, bias=False)
        self.head.weight = self.wte.weight

    def forward(self, input_ids, labels=None):
        x = self.wte(input_ids) + self.wpe(torch.arange(input_ids.size(1), device=input_ids.device))
        for layer in self.h:
            x = layer(x)
        logits = self.head(self.ln_f(x))
        if labels is None:
            return logits, None
        return logits, F.cross_entropy(logits.view(-1, vocab), labels.view(-1))


model = GPT().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, betas=(0.9, 0.95), weight_decay=0.1)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 6e-4, total_steps=max_iters)
stream, val = iter(DataLoader(Stream(), batch_size=batch)), iter(DataLoader(Stream(), batch_size=batch))
for it in range(max_iters):
    if it % 20 == 10:
        model.eval()
        with torch.no_grad():
            losses = [model(**{k: v.to(device) for k, v in next(val).items()})[1].item() for _ in range(2)]
        model.train()
    optimizer.zero_grad(set_to_none=True)
    for _ in range(accumulate):
        inputs = {k: v.to(device) for k, v in next(stream).items()}
        _, loss = model(**inputs)
        (loss / accumulate).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    scheduler.step()
