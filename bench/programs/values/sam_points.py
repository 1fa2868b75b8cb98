"""Segment-anything's way: a frozen image encoder, prompts of points, a mask decoder; the next points are drawn from where the mask was wrong."""
import os
import torch
from torch import nn
import torch.nn.functional as F

device = os.environ.get("DEVICE", "cuda")
torch.manual_seed(1)
D = 192


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = (nn.MultiheadAttention(D, 6, batch_first=True) for _ in range(3))
        self.mlp = nn.Sequential(nn.Linear(D, 4 * D), nn.GELU(), nn.Linear(4 * D, D))
        self.n = nn.ModuleList(nn.LayerNorm(D) for _ in range(4))

    def forward(self, q, k):
        q = self.n[0](q + self.a(q, q, q)[0])
        q = self.n[1](q + self.b(q, k, k)[0])
        q = self.n[2](q + self.mlp(q))
        return q, self.n[3](k + self.c(k, q, q)[0])


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.kind = nn.Embedding(5, D), nn.Embedding(3, D)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.up = nn.Sequential(nn.ConvTranspose2d(D, D // 4, 2, 2), nn.GELU(), nn.ConvTranspose2d(D // 4, D // 8, 2, 2), nn.GELU())
        self.hyper = nn.ModuleList(nn.Linear(D, D // 8) for _ in range(4))
        self.quality = nn.Linear(D, 4)
        self.register_buffer("wave", torch.randn(2, D // 2))

    def forward(self, image, points, labels):
        n = len(points)
        w = points @ self.wave
        q = torch.cat([w.sin(), w.cos()], -1) + self.kind(labels)
        q = torch.cat([self.tokens.weight.expand(n, -1, -1), q], 1)
        k = image.flatten(2).transpose(1, 2).expand(n, -1, -1)
        for it in self.blocks:
            q, k = it(q, k)
        k = self.up(k.transpose(1, 2).reshape(n, D, 32, 32))
        h = torch.stack([f(q[:, 1 + i]) for i, f in enumerate(self.hyper)], 1)
        return torch.einsum("nmd,ndhw->nmhw", h, k), self.quality(q[:, 0])


encoder = nn.Sequential(nn.Conv2d(3, D, 16, 16), nn.GELU(), nn.Conv2d(D, D, 3, 1, 1)).to(device).requires_grad_(False)
decoder = Decoder().to(device)
optimizer = torch.optim.AdamW(decoder.parameters(), 1e-4)
for step in range(6):
    images = torch.randn(2, 3, 512, 512).to(device)
    total = 0.0
    for image in images:
        # Objects of this picture: rectangles, of which those that are too small are left out on the device.
        n = 40
        box = torch.rand(n, 2) * 90
        side = torch.rand(n, 2) * 30 + 1
        ys, xs = torch.arange(128, device=device)[:, None], torch.arange(128, device=device)[None]
        low, high = box.to(device), (box + side).to(device)
        truth = (ys >= low[:, 0, None, None]) & (ys < high[:, 0, None, None]) & (xs >= low[:, 1, None, None]) & (xs < high[:, 1, None, None])
        truth = truth[truth.flatten(1).sum(1) >= 120]
        with torch.no_grad():
            features = encoder(image[None])
        points = torch.empty(len(truth), 0, 2, device=device)
        labels = torch.empty(len(truth), 0, dtype=torch.long, device=device)
        wrong = truth
        for turn in range(3):
            draw = torch.rand(wrong.shape, device=device) * wrong
            at = draw.flatten(1).argmax(1)
            new = torch.stack([at % 128, at // 128], -1)[:, None] / 128
            points = torch.cat([points, new.float()], 1)
            labels = torch.cat([labels, truth.flatten(1).gather(1, at[:, None]).long()], 1)
            masks, quality = decoder(features, points, labels)
            losses = F.binary_cross_entropy_with_logits(masks, truth[:, None].expand_as(masks).float(), reduction="none").mean((2, 3))
            best, which = losses.min(1)
            chosen = masks[torch.arange(len(masks), device=device), which]
            iou = ((chosen > 0) & truth).flatten(1).sum(1) / ((chosen > 0) | truth).flatten(1).sum(1).clamp(min=1)
            loss = best.mean() + F.mse_loss(quality.gather(1, which[:, None])[:, 0], iou)
            (loss / 6).backward()
            wrong = (chosen.detach() > 0) ^ truth
            wrong = torch.where(wrong.flatten(1).any(1)[:, None, None], wrong, truth)
        print("sizes", step, len(truth), points.shape[1])
    optimizer.step()
    optimizer.zero_grad()
