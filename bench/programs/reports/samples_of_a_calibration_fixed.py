"""Activation-aware quantization of a large language model, block by block, with 512 texts for the calibration (AutoAWQ#242)."""
import torch
import torch.nn.functional as F
from torch import nn

WIDTH, INNER, HEADS, BLOCKS = 4096, 11008, 32, 6


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
        self.gate, self.up = (nn.Linear(WIDTH, INNER, bias=False) for _ in range(2))
        self.down = nn.Linear(INNER, WIDTH, bias=False)

    def forward(self, x):
        b, n, _ = x.shape
        y = self.norm1(x)
        q, k, v = (part(y).view(b, n, HEADS, -1).transpose(1, 2) for part in (self.q, self.k, self.v))
        x = x + self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, n, WIDTH))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


def load_block(index):
    with torch.device("cuda"):
        return Block().half().eval()


def calibration_inputs(n_samples, length=512):
    table = torch.empty(32000, WIDTH, device="cuda", dtype=torch.half)
    ids = torch.zeros(n_samples, length, device="cuda", dtype=torch.long)
    return F.embedding(ids, table)


def run(block, inps):
    return torch.cat([block(part) for part in inps.split(16)])


def scale_of(weight, activation):
    return (activation / (weight.abs().mean(0) + 1e-4)).clamp(min=1e-4).sqrt()


@torch.no_grad()
def quantize(block, bits=4, group=128):
    for layer in block.modules():
        if isinstance(layer, nn.Linear):
            w = layer.weight.view(-1, group)
            scale = w.abs().amax(1, keepdim=True) / (2 ** (bits - 1) - 1)
            layer.weight.data = ((w / scale).round() * scale).view_as(layer.weight)


with torch.no_grad():
    inps = calibration_inputs(n_samples=512)
    for index in range(BLOCKS):
        block = load_block(index)
        means = inps.abs().mean((0, 1)) if index == 0 else means * 0.9
        block.q.weight.mul_(scale_of(block.q.weight, means)[None])
        inps = run(block, inps)
        quantize(block)
        print(index, tuple(inps.shape))
