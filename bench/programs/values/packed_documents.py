"""Documents packed into rows of fixed length, and attention that stays within each: a mask, and its own number of tiles."""
import os
import torch
from torch import nn

device = os.environ.get("DEVICE", "cuda")
torch.manual_seed(13)
ROW, TILE = 512, 32
embed, head = nn.Embedding(12000, 320).to(device), nn.Linear(320, 12000).to(device)
attention = nn.MultiheadAttention(320, 5, batch_first=True).to(device)
bias = nn.Linear(1, 64).to(device)
optimizer = torch.optim.AdamW([*embed.parameters(), *head.parameters(), *attention.parameters(), *bias.parameters()])
for step in range(5):
    documents = [torch.randint(4, 12000, (int(it),)) for it in torch.randint(20, 300, (40,))]
    lengths = torch.tensor([len(it) for it in documents], device=device)
    flat = torch.cat([it.to(device) for it in documents])
    rows = -(-flat.numel() // ROW)
    padded = torch.cat([flat, flat.new_zeros(rows * ROW - flat.numel())])
    ends = lengths.cumsum(0)
    number = torch.bucketize(torch.arange(padded.numel(), device=device), ends, right=True).view(rows, ROW)
    ids = padded.view(rows, ROW)
    same = number[:, :, None] == number[:, None, :]
    causal = torch.ones(ROW, ROW, dtype=torch.bool, device=device).tril()
    allowed = same & causal
    tiles = allowed.view(rows, ROW // TILE, TILE, ROW // TILE, TILE).any(4).any(2)
    used = tiles.nonzero()
    tile_features = bias(used[:, :1].float())
    hidden = embed(ids)
    mixed, _ = attention(hidden, hidden, hidden, attn_mask=(~allowed).repeat_interleave(5, 0), need_weights=False)
    target = (number[:, 1:] == number[:, :-1]) & (ids[:, 1:] > 0)
    loss = nn.functional.cross_entropy(head(mixed[:, :-1][target]), ids[:, 1:][target]) + tile_features.mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print("sizes", rows, used.shape[0], int(target.sum()))
