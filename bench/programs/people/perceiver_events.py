"""A Perceiver: few latents look at many events with cross-attention, again and again with shared weights, masks for what is padded."""
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

D, LATENTS = 512, 256


class Cross(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2, self.n3 = nn.LayerNorm(D), nn.LayerNorm(D), nn.LayerNorm(D)
        self.attention = nn.MultiheadAttention(D, 8, dropout=0.1, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(D, 2 * D), nn.GELU(), nn.Linear(2 * D, D))

    def forward(self, latents, events, padded):
        keys = self.n2(events)
        latents = latents + self.attention(self.n1(latents), keys, keys, key_padding_mask=padded, need_weights=False)[0]
        return latents + self.mlp(self.n3(latents))


class Perceiver(nn.Module):
    def __init__(self):
        super().__init__()
        self.kinds = nn.Embedding(1000, D)
        self.when = nn.Sequential(nn.Linear(1, 64), nn.SiLU(), nn.Linear(64, D))
        self.latents = nn.Parameter(torch.randn(LATENTS, D) * 0.02)
        self.cross = Cross()
        self.inner = nn.TransformerEncoder(nn.TransformerEncoderLayer(D, 8, 4 * D, batch_first=True, norm_first=True, activation="gelu"), 4, enable_nested_tensor=False)
        self.head = nn.Linear(D, 50)

    def forward(self, kinds, times, padded):
        events = self.kinds(kinds) + self.when(times[..., None])
        x = self.latents.expand(len(kinds), -1, -1)
        for _ in range(4):
            x = self.inner(self.cross(x, events, padded))
        return self.head(x.mean(1))


def collate(rows):
    kinds = pad_sequence([it[0] for it in rows], batch_first=True)
    times = pad_sequence([it[1] for it in rows], batch_first=True)
    lengths = torch.tensor([len(it[0]) for it in rows])
    return kinds, times, torch.arange(kinds.shape[1])[None] >= lengths[:, None], torch.tensor([it[2] for it in rows])


torch.manual_seed(0)
lengths = torch.randint(500, 4000, (600,)).tolist()
people = [(torch.randint(0, 1000, (n,)), torch.rand(n).cumsum(0) / n, n % 50) for n in lengths]
loader = DataLoader(people, batch_size=16, shuffle=True, collate_fn=collate, num_workers=2, pin_memory=True)
model = Perceiver().cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4)
for epoch in range(3):
    for kinds, times, padded, target in loader:
        kinds, times, padded, target = (it.cuda(non_blocking=True) for it in (kinds, times, padded, target))
        loss = F.cross_entropy(model(kinds, times, padded), target)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    print(epoch, loss.item())
