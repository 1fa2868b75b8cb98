"""A Conformer with CTC under fp16: batches by length, SpecAugment on the GPU, a Noam schedule, gradients of four batches together."""
import random

import torch
import torch.nn.functional as F
from torch import nn

random.seed(5)
torch.manual_seed(5)


class FeedForward(nn.Sequential):
    def __init__(self, d):
        super().__init__(nn.LayerNorm(d), nn.Linear(d, 4 * d), nn.SiLU(), nn.Dropout(0.1), nn.Linear(4 * d, d), nn.Dropout(0.1))


class Convolution(nn.Module):
    def __init__(self, d, k=31):
        super().__init__()
        self.norm, self.p1 = nn.LayerNorm(d), nn.Conv1d(d, 2 * d, 1)
        self.dw, self.bn, self.p2 = nn.Conv1d(d, d, k, padding=k // 2, groups=d), nn.BatchNorm1d(d), nn.Conv1d(d, d, 1)

    def forward(self, x):
        h = F.glu(self.p1(self.norm(x).transpose(1, 2)), 1)
        return self.p2(F.silu(self.bn(self.dw(h)))).transpose(1, 2)


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.f1, self.f2, self.conv = FeedForward(d), FeedForward(d), Convolution(d)
        self.norm, self.att, self.last = nn.LayerNorm(d), nn.MultiheadAttention(d, 8, dropout=0.1, batch_first=True), nn.LayerNorm(d)

    def forward(self, x, padding):
        x = x + 0.5 * self.f1(x)
        h = self.norm(x)
        x = x + self.att(h, h, h, key_padding_mask=padding, need_weights=False)[0]
        x = x + self.conv(x)
        return self.last(x + 0.5 * self.f2(x))


class Conformer(nn.Module):
    def __init__(self, d=512, layers=14, vocab=1024):
        super().__init__()
        self.sub = nn.Sequential(nn.Conv2d(1, d, 3, 2, 1), nn.ReLU(), nn.Conv2d(d, d, 3, 2, 1), nn.ReLU())
        self.inp = nn.Linear(d * 20, d)
        self.blocks = nn.ModuleList(Block(d) for _ in range(layers))
        self.head = nn.Linear(d, vocab)

    def forward(self, x, lengths):
        h = self.sub(x[:, None])
        h = self.inp(h.permute(0, 2, 1, 3).flatten(2))
        lengths = (lengths + 3) // 4
        padding = torch.arange(h.shape[1], device=h.device)[None] >= lengths[:, None]
        for block in self.blocks:
            h = block(h, padding)
        return self.head(h), lengths


def spec_augment(x):
    for _ in range(2):
        f, t = random.randint(0, 60), random.randint(0, x.shape[1] - 50)
        x[:, :, f : f + random.randint(1, 20)] = 0
        x[:, t : t + random.randint(1, 50)] = 0
    return x


model = Conformer().cuda()
optimizer = torch.optim.Adam(model.parameters(), 1e-3, betas=(0.9, 0.98))
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min((s + 1) ** -0.5, (s + 1) * 1000**-1.5))
scaler = torch.amp.GradScaler("cuda", init_scale=1024.0)
lengths = sorted(random.randint(400, 1600) for _ in range(1200))
batches = [lengths[n : n + 12] for n in range(0, len(lengths), 12)]
random.shuffle(batches)
for step, them in enumerate(batches):
    x = spec_augment(torch.randn(len(them), max(them), 80).cuda())
    n = torch.tensor(them).cuda()
    targets = torch.randint(1, 1024, (len(them), 60)).cuda()
    with torch.autocast("cuda", torch.float16):
        logits, outs = model(x, n)
    loss = F.ctc_loss(logits.float().log_softmax(-1).transpose(0, 1), targets, outs, torch.full((len(them),), 60).cuda(), zero_infinity=True)
    scaler.scale(loss / 4).backward()
    if step % 4 == 3:
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        schedule.step()
