"""A GPT trained by hand in fp16: GradScaler, clipping, warm-up, an evaluation and a checkpoint every hundred steps."""
import math
import os
import tempfile

import torch
import torch.nn.functional as F
from torch import nn

VOCAB, D, HEADS, LAYERS, LENGTH, BATCH = 16384, 640, 10, 10, 512, 24


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.qkv, self.out = nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.up, self.down = nn.Linear(D, 4 * D), nn.Linear(4 * D, D)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(b, t, 3, HEADS, D // HEADS).permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-2, -1)) / math.sqrt(D // HEADS)
        mask = torch.ones(t, t, dtype=torch.bool, device=x.device).tril()
        attended = self.drop(scores.masked_fill(~mask, float("-inf")).softmax(-1)) @ v
        x = x + self.drop(self.out(attended.transpose(1, 2).reshape(b, t, D)))
        return x + self.drop(self.down(F.gelu(self.up(self.ln2(x)))))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCAB, D), nn.Embedding(LENGTH, D)
        self.blocks, self.norm = nn.ModuleList([Block() for _ in range(LAYERS)]), nn.LayerNorm(D)
        self.head = nn.Linear(D, VOCAB, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, ids, targets):
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.view(-1, VOCAB), targets.reshape(-1))


torch.manual_seed(0)
text = torch.randint(0, VOCAB, (2_000_000,))


def batch():
    starts = torch.randint(0, len(text) - LENGTH - 1, (BATCH,))
    rows = torch.stack([text[i : i + LENGTH + 1] for i in starts]).pin_memory().cuda(non_blocking=True)
    return rows[:, :-1], rows[:, 1:]


model = GPT().cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.1)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1, (step + 1) / 50))
scaler = torch.amp.GradScaler()
for step in range(200):
    with torch.autocast("cuda", dtype=torch.float16):
        loss = model(*batch())
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
    schedule.step()
    if step % 100 == 99:
        model.eval()
        with torch.no_grad(), torch.autocast("cuda", dtype=torch.float16):
            held = sum(model(*batch()).item() for _ in range(4)) / 4
        model.train()
        torch.save({"model": model.state_dict(), "step": step}, os.path.join(tempfile.gettempdir(), "gpt.pt"))
        print(step, loss.item(), held)
