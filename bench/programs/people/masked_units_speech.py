"""Masked prediction of speech units: a frontend of strided convolutions, spans that are masked, a transformer with a convolution for places."""
import torch
import torch.nn.functional as F
from torch import nn

UNITS, BATCH, SAMPLES = 500, 12, 80000


class Frontend(nn.Module):
    def __init__(self):
        super().__init__()
        shape = [(1, 10, 5)] + [(384, 3, 2)] * 4 + [(384, 2, 2)] * 2
        self.layers = nn.ModuleList(nn.Conv1d(c, 384, k, s, bias=False) for c, k, s in shape)
        self.norm = nn.GroupNorm(384, 384)

    def forward(self, x):
        for n, layer in enumerate(self.layers):
            x = layer(x)
            x = F.gelu(self.norm(x) if n == 0 else x)
        return x.transpose(1, 2)


class Model(nn.Module):
    def __init__(self, width=768):
        super().__init__()
        self.front, self.up = Frontend(), nn.Sequential(nn.LayerNorm(384), nn.Linear(384, width))
        self.masked = nn.Parameter(torch.zeros(width))
        self.places = nn.Conv1d(width, width, 128, padding=64, groups=16)
        layer = nn.TransformerEncoderLayer(width, 12, 3072, 0.1, "gelu", batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 8, nn.LayerNorm(width), enable_nested_tensor=False)
        self.out = nn.Linear(width, UNITS)

    def forward(self, wave, mask):
        x = self.up(self.front(wave[:, None]))
        x = torch.where(mask[:, : x.shape[1], None], self.masked, x)
        x = x + F.gelu(self.places(x.transpose(1, 2))[..., : x.shape[1]]).transpose(1, 2)
        return self.out(self.encoder(x))


torch.manual_seed(0)
model = Model().cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4, weight_decay=0.01)
spans = torch.zeros(BATCH, 260, dtype=torch.bool, device="cuda")
for at in range(0, 240, 25):
    spans[:, at : at + 10] = True
for step in range(30):
    wave = torch.randn(BATCH, SAMPLES).cuda(non_blocking=True)
    units = torch.randint(0, UNITS, (BATCH, 260), device="cuda")
    logits = model(wave, spans)
    frames = logits.shape[1]
    loss = F.cross_entropy(logits[spans[:, :frames]], units[:, :frames][spans[:, :frames]])
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    if step % 10 == 0:
        print(step, float(loss))
