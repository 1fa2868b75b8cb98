"""A model of 8-bit weights: each layer unpacks its weight when it first needs it, and remembers that."""
import torch
import torch.nn.functional as F
from torch import nn


class Int8Linear(nn.Module):
    def __init__(self, inside, outside):
        super().__init__()
        self.register_buffer("packed", torch.randint(-127, 128, (outside, inside), dtype=torch.int8))
        self.register_buffer("scale", torch.rand(outside, 1, dtype=torch.bfloat16) / 1000)
        self._weight = None

    @property
    def weight(self):
        if self._weight is None:
            self._weight = self.packed.to(torch.bfloat16) * self.scale
        return self._weight

    def forward(self, x):
        return F.linear(x, self.weight)


class Layer(nn.Module):
    def __init__(self, width=4096, inner=14336, heads=32):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.RMSNorm(width, dtype=torch.bfloat16), nn.RMSNorm(width, dtype=torch.bfloat16)
        self.qkv, self.out = Int8Linear(width, 3 * width), Int8Linear(width, width)
        self.gate, self.up, self.down = Int8Linear(width, inner), Int8Linear(width, inner), Int8Linear(inner, width)

    def forward(self, x):
        b, t, w = x.shape
        q, k, v = (it.view(b, t, self.heads, -1).transpose(1, 2) for it in self.qkv(self.norm1(x)).chunk(3, -1))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, w))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Model(nn.Module):
    def __init__(self, layers=12, words=32000, width=4096):
        super().__init__()
        self.embed = nn.Embedding(words, width, dtype=torch.bfloat16)
        self.layers = nn.ModuleList(Layer() for _ in range(layers))
        self.head = Int8Linear(width, words)

    def forward(self, ids):
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(x[:, -1:])


def main():
    torch.set_default_device("cuda")
    model = Model().eval()
    print(f"loaded: {torch.cuda.memory_allocated() / 2**30:.2f} GiB")
    with torch.inference_mode():
        for question in range(6):
            ids = torch.randint(0, 32000, (1, 400))
            for _ in range(12):
                ids = torch.cat([ids, model(ids).argmax(-1)], dim=1)
            print("question", question, f"{torch.cuda.max_memory_allocated() / 2**30:.2f} GiB")


if __name__ == "__main__":
    main()
