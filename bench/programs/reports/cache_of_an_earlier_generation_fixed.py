"""generate() keeps its static cache as an attribute; the scoring after it has that much less (huggingface/transformers#47731)."""
import torch
from torch import nn

LAYERS, WIDTH, HEADS, BATCH, LONGEST = 16, 1024, 16, 8, 16384


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x, cache=None, at=0):
        b, t, _ = x.shape
        q, k, v = (it.view(b, t, HEADS, -1).transpose(1, 2) for it in self.qkv(x).chunk(3, -1))
        if cache is not None:
            cache[0][:, :, at:at + t] = k
            cache[1][:, :, at:at + t] = v
            k, v = cache[0][:, :, :at + t], cache[1][:, :, :at + t]
        x = x + self.out(nn.functional.scaled_dot_product_attention(q, k, v, is_causal=cache is None).transpose(1, 2).reshape(b, t, -1))
        return x + self.mlp(x)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(32000, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self._cache = None

    def forward(self, ids, cache=None, at=0):
        x = self.words(ids)
        for n, layer in enumerate(self.layers):
            x = layer(x, None if cache is None else cache[n], at)
        return x @ self.words.weight.t()

    @torch.no_grad()
    def generate(self, ids, more):
        self._cache = [torch.zeros(2, len(ids), HEADS, LONGEST, WIDTH // HEADS, dtype=torch.bfloat16, device="cuda") for _ in range(LAYERS)]
        at = 0
        for _ in range(more):
            logits = self(ids[:, at:], self._cache, at)
            at = ids.shape[1]
            ids = torch.cat([ids, logits[:, -1:].argmax(-1)], 1)
        self._cache = None
        return ids


model = Model().to(torch.bfloat16).cuda().eval()
text = model.generate(torch.randint(0, 32000, (BATCH, 512)).cuda(), 20)
with torch.no_grad():
    for _ in range(50):
        ids = torch.randint(0, 32000, (BATCH, 4096)).cuda()
        loss = nn.functional.cross_entropy(model(ids)[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
        print(loss.item())
