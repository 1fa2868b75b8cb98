"""FourCastNet-like forecast on a latitude-longitude grid: Fourier mixing, two steps unrolled, loss weighted by latitude, bf16."""
import argparse
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


class Reanalysis(Dataset):
    def __init__(self, n, args):
        self.n, self.args = n, args
        self.climate = torch.randn(args.variables, args.lat, args.lon)

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        frames = [torch.roll(self.climate, (i + k) * 3, -1) + 0.1 * k for k in range(self.args.rollout + 1)]
        return torch.stack(frames)


class AFNO2D(nn.Module):
    def __init__(self, dim, blocks=8, sparsity=0.01):
        super().__init__()
        self.blocks, self.size, self.sparsity = blocks, dim // blocks, sparsity
        self.w1 = nn.Parameter(0.02 * torch.randn(2, blocks, self.size, self.size))
        self.b1 = nn.Parameter(0.02 * torch.randn(2, blocks, self.size))
        self.w2 = nn.Parameter(0.02 * torch.randn(2, blocks, self.size, self.size))
        self.b2 = nn.Parameter(0.02 * torch.randn(2, blocks, self.size))

    def forward(self, x):
        bias, dtype = x, x.dtype
        b, h, w, c = x.shape
        with torch.autocast("cuda", enabled=False):
            z = torch.fft.rfft2(x.float(), dim=(1, 2), norm="ortho").reshape(b, h, w // 2 + 1, self.blocks, self.size)
            mul = lambda a, m: torch.einsum("...bi,bio->...bo", a, m)
            re = F.relu(mul(z.real, self.w1[0]) - mul(z.imag, self.w1[1]) + self.b1[0])
            im = F.relu(mul(z.imag, self.w1[0]) + mul(z.real, self.w1[1]) + self.b1[1])
            out_re = mul(re, self.w2[0]) - mul(im, self.w2[1]) + self.b2[0]
            out_im = mul(im, self.w2[0]) + mul(re, self.w2[1]) + self.b2[1]
            z = F.softshrink(torch.stack([out_re, out_im], -1), self.sparsity)
            z = torch.view_as_complex(z.contiguous()).reshape(b, h, w // 2 + 1, c)
            x = torch.fft.irfft2(z, s=(h, w), dim=(1, 2), norm="ortho")
        return x.to(dtype) + bias


class Block(nn.Module):
    def __init__(self, dim, drop):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim, eps=1e-6), nn.LayerNorm(dim, eps=1e-6)
        self.filter = AFNO2D(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Dropout(drop), nn.Linear(4 * dim, dim), nn.Dropout(drop))

    def forward(self, x):
        residual = x
        x = self.filter(self.norm1(x)) + residual
        return x + self.mlp(self.norm2(x))


class FourCastNet(nn.Module):
    def __init__(self, args):
        super().__init__()
        p = self.patch = args.patch
        self.embed = nn.Conv2d(args.variables, args.dim, p, stride=p)
        self.pos = nn.Parameter(torch.zeros(1, args.lat // p, args.lon // p, args.dim))
        nn.init.trunc_normal_(self.pos, std=0.02)
        self.blocks = nn.ModuleList([Block(args.dim, args.drop) for _ in range(args.depth)])
        self.head = nn.Linear(args.dim, args.variables * p * p, bias=False)

    def forward(self, x):
        t = self.embed(x).permute(0, 2, 3, 1) + self.pos
        for block in self.blocks:
            t = block(t)
        return x + F.pixel_shuffle(self.head(t).permute(0, 3, 1, 2), self.patch)


def weighted_mse(prediction, truth, weights):
    return (weights * (prediction - truth) ** 2).mean()


def main(args):
    torch.manual_seed(args.seed)
    device = torch.device("cuda")
    lat = torch.linspace(math.pi / 2, -math.pi / 2, args.lat, device=device).cos()
    weights = (lat / lat.mean()).view(1, 1, -1, 1)
    model = FourCastNet(args).to(device)
    print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.1f} M parameters")
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, betas=(0.9, 0.95), weight_decay=0.05)
    loader = DataLoader(Reanalysis(args.batch_size * args.steps_per_epoch, args), args.batch_size, shuffle=True, num_workers=4, pin_memory=True)
    valid = DataLoader(Reanalysis(4, args), args.batch_size)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs * args.steps_per_epoch)
    for epoch in range(args.epochs):
        model.train()
        for i, frames in enumerate(loader):
            frames = frames.to(device, non_blocking=True)
            state, loss = frames[:, 0], 0.0
            with torch.autocast("cuda", dtype=torch.bfloat16):
                for k in range(1, args.rollout + 1):
                    state = model(state)
                    loss = loss + weighted_mse(state.float(), frames[:, k], weights)
            optimizer.zero_grad(set_to_none=True)
            (loss / args.rollout).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            if i % 5 == 0:
                print(f"epoch {epoch} iter {i} loss {loss.item() / args.rollout:.4f}")
        model.eval()
        errors = []
        with torch.no_grad():
            for frames in valid:
                state = frames[:, 0].to(device)
                for k in range(1, args.rollout + 1):
                    with torch.autocast("cuda", dtype=torch.bfloat16):
                        state = model(state)
                    errors.append(weighted_mse(state.float(), frames[:, k].to(device), weights).sqrt().item())
        print(f"epoch {epoch} rmse {sum(errors) / len(errors):.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--lat", type=int, default=360)
    parser.add_argument("--lon", type=int, default=720)
    parser.add_argument("--variables", type=int, default=20)
    parser.add_argument("--patch", type=int, default=4)
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--depth", type=int, default=8)
    parser.add_argument("--drop", type=float, default=0.1)
    parser.add_argument("--rollout", type=int, default=2)
    parser.add_argument("--batch_size", type=int, default=2)
    parser.add_argument("--steps_per_epoch", type=int, default=15)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--lr", type=float, default=5e-4)
    parser.add_argument("--seed", type=int, default=42)
    main(parser.parse_args())
