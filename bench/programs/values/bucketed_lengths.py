"""Batches of similar lengths, formed on the device: sorted by length, cut into buckets, each padded to its longest."""
import os
import torch
from torch import nn

device = os.environ.get("DEVICE", "cuda")
torch.manual_seed(11)
lengths = (torch.rand(512) ** 2 * 380 + 12).long().to(device)
tokens = torch.randint(1, 8000, (int(lengths.sum()),)).to(device)
starts = lengths.cumsum(0) - lengths
model = nn.ModuleDict({"embed": nn.Embedding(8000, 256), "mix": nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True), "head": nn.Linear(256, 8000)}).to(device)
optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
order = lengths.argsort()
buckets = order.view(-1, 32)
for step in torch.randperm(len(buckets)).tolist()[:6]:
    rows = buckets[step]
    longest = lengths[rows].max()
    places = torch.arange(longest, device=device)
    inside = places[None] < lengths[rows][:, None]
    where = (starts[rows][:, None] + places[None]).clamp(max=tokens.numel() - 1)
    ids = torch.where(inside, tokens[where], torch.zeros_like(where))
    hidden = model["mix"](model["embed"](ids), src_key_padding_mask=~inside)
    kept = hidden[:, :-1][inside[:, 1:]]
    loss = nn.functional.cross_entropy(model["head"](kept), ids[:, 1:][inside[:, 1:]])
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print("sizes", tuple(ids.shape), kept.shape[0])
