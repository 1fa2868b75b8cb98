"""A language model whose blocks are compiled one by one, bf16 weights, the loss outside, gradients accumulated over two batches."""

import torch
from torch import nn
from torch.nn import functional as F

VOCABULARY, LENGTH, WIDTH, DEPTH = 64000, 1024, 1024, 12


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.qkv, self.o = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.up, self.gate, self.down = (nn.Linear(*it, bias=False) for it in ((WIDTH, 2816), (WIDTH, 2816), (2816, WIDTH)))

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.a(x)).view(b, t, 3, 16, c // 16).permute(2, 0, 3, 1, 4)
        x = x + self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, c))
        y = self.b(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(DEPTH))
        self.norm, self.head = nn.RMSNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, ids):
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


torch.manual_seed(0)
model = Model().to("cuda", torch.bfloat16)
for i, block in enumerate(model.blocks):
    model.blocks[i] = torch.compile(block)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95))
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1, (step + 1) / 100))
for step in range(30):
    for _ in range(2):
        ids = torch.randint(VOCABULARY, (8, LENGTH + 1))
        ids[:, -50:] = -100
        inputs = ids[:, :-1].clamp_min(0).cuda()
        logits = model(inputs)
        loss = F.cross_entropy(logits.float().view(-1, VOCABULARY), ids[:, 1:].reshape(-1).cuda(), ignore_index=-100)
        (loss / 2).backward()
    optimizer.step()
    schedule.step()
    optimizer.zero_grad(set_to_none=True)
    if step % 10 == 9:
        print(step, loss.item())
