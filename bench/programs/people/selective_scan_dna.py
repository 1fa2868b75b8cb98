"""A Mamba-like model over DNA in plain PyTorch: selective scan in chunks, next nucleotide, reverse complements, dataclass config."""
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Config:
    vocab: int = 12
    d_model: int = 256
    n_layer: int = 8
    expand: int = 2
    d_state: int = 16
    d_conv: int = 4
    dt_rank: int = 16
    chunk: int = 64
    seq_len: int = 1024
    batch: int = 8
    steps: int = 40
    lr: float = 8e-4
    warmup: int = 5


class RMSNorm(nn.Module):
    def __init__(self, d, eps=1e-5):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(d)), eps

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


def selective_scan(u, delta, A, B, C, D, chunk):
    b, l, d = u.shape
    n = A.shape[1]
    delta_a = torch.einsum("bld,dn->bldn", delta, A).view(b, l // chunk, chunk, d, n)
    delta_bu = torch.einsum("bld,bln,bld->bldn", delta, B, u).view(b, l // chunk, chunk, d, n)
    decay = delta_a.cumsum(2).exp()
    local = (delta_bu / (decay + 1e-12)).cumsum(2) * decay
    state, states = torch.zeros(b, d, n, device=u.device), []
    for i in range(l // chunk):
        h = local[:, i] + decay[:, i] * state[:, None]
        states.append(torch.einsum("bcdn,bcn->bcd", h, C[:, i * chunk : (i + 1) * chunk]))
        state = h[:, -1]
    return torch.cat(states, 1) + u * D


class MambaBlock(nn.Module):
    def __init__(self, c: Config):
        super().__init__()
        self.c = c
        inner = c.expand * c.d_model
        self.norm = RMSNorm(c.d_model)
        self.in_proj = nn.Linear(c.d_model, 2 * inner, bias=False)
        self.conv1d = nn.Conv1d(inner, inner, c.d_conv, groups=inner, padding=c.d_conv - 1)
        self.x_proj = nn.Linear(inner, c.dt_rank + 2 * c.d_state, bias=False)
        self.dt_proj = nn.Linear(c.dt_rank, inner)
        nn.init.constant_(self.dt_proj.bias, -4.0)
        self.A_log = nn.Parameter(torch.arange(1, c.d_state + 1).float().log().repeat(inner, 1))
        self.D = nn.Parameter(torch.ones(inner))
        self.out_proj = nn.Linear(inner, c.d_model, bias=False)

    def forward(self, x):
        l = x.shape[1]
        u, gate = self.in_proj(self.norm(x)).chunk(2, -1)
        u = F.silu(self.conv1d(u.transpose(1, 2))[..., :l].transpose(1, 2))
        dt, B, C = self.x_proj(u).split([self.c.dt_rank, self.c.d_state, self.c.d_state], -1)
        y = selective_scan(u, F.softplus(self.dt_proj(dt)), -self.A_log.exp(), B, C, self.D, self.c.chunk)
        return x + self.out_proj(y * F.silu(gate))


class DNAModel(nn.Module):
    def __init__(self, c: Config):
        super().__init__()
        self.embedding = nn.Embedding(c.vocab, c.d_model)
        self.layers = nn.ModuleList(MambaBlock(c) for _ in range(c.n_layer))
        self.norm_f = RMSNorm(c.d_model)
        self.lm_head = nn.Linear(c.d_model, c.vocab, bias=False)
        self.lm_head.weight = self.embedding.weight
        nn.init.normal_(self.embedding.weight, std=0.02)

    def forward(self, ids):
        x = self.embedding(ids)
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(self.norm_f(x))


def reverse_complement(ids):
    return (3 - ids).flip(-1)


def batches(genome, c, steps, generator):
    for _ in range(steps):
        starts = torch.randint(len(genome) - c.seq_len - 1, (c.batch,), generator=generator)
        ids = torch.stack([genome[s : s + c.seq_len + 1] for s in starts.tolist()])
        flip = torch.rand(c.batch, generator=generator) < 0.5
        ids[flip] = reverse_complement(ids[flip])
        yield ids[:, :-1].cuda(), ids[:, 1:].cuda()


@torch.no_grad()
def perplexity(model, genome, c):
    model.eval()
    losses = [F.cross_entropy(model(x).transpose(1, 2), y) for x, y in batches(genome, c, 4, torch.Generator().manual_seed(1))]
    model.train()
    return torch.stack(losses).mean().exp().item()


def main():
    c = Config()
    torch.manual_seed(2222)
    genome = torch.randint(4, (2_000_000,))
    held_out = torch.randint(4, (200_000,))
    model = DNAModel(c).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=c.lr, betas=(0.9, 0.95), weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1.0, (s + 1) / c.warmup))
    for step, (x, y) in enumerate(batches(genome, c, c.steps, torch.Generator().manual_seed(0))):
        loss = F.cross_entropy(model(x).transpose(1, 2), y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        schedule.step()
        if (step + 1) % 10 == 0:
            print(f"step {step + 1} loss {loss.item():.4f} val ppl {perplexity(model, held_out, c):.3f}")


if __name__ == "__main__":
    main()
