"""Serving: requests with budgets; whoever is done leaves the batch, and its cache with it; the next ones come in."""
import os
import torch
from torch import nn

device = os.environ.get("DEVICE", "cuda")
torch.manual_seed(17)
waiting = torch.randint(5, 60, (48,))
prompts = torch.randint(10, 120, (48,))
query, out = nn.Linear(512, 1536).to(device), nn.Linear(512, 512).to(device)
turns, left, cache, length = 0, torch.zeros(0, dtype=torch.long, device=device), None, torch.zeros(0, dtype=torch.long, device=device)
with torch.no_grad():
    while len(waiting) or left.numel():
        if len(waiting) and left.numel() < 12:
            take = 16 - left.numel()
            left = torch.cat([left, waiting[:take].to(device)])
            length = torch.cat([length, prompts[:take].to(device)])
            longest = int(length.max())
            fresh = torch.zeros(len(waiting[:take]), longest, 2, 512, device=device)
            if cache is not None:
                grown = nn.functional.pad(cache, (0, 0, 0, 0, 0, max(0, longest - cache.shape[1])))
                fresh = nn.functional.pad(fresh, (0, 0, 0, 0, 0, grown.shape[1] - longest))
                fresh = torch.cat([grown, fresh])
            cache, waiting, prompts = fresh, waiting[take:], prompts[take:]
        q, k, v = query(torch.randn(left.numel(), 1, 512, device=device)).chunk(3, -1)
        cache = torch.cat([cache, torch.stack([k, v], 2)], 1)
        inside = torch.arange(cache.shape[1], device=device) < length[:, None]
        weights = (q @ cache[:, :, 0].transpose(1, 2)).masked_fill(~inside[:, None], -1e9).softmax(-1)
        out(weights @ cache[:, :, 1])
        left, length, turns = left - 1, length + 1, turns + 1
        alive = left > 0
        if not alive.all():
            left, length, cache = left[alive], length[alive], cache[alive]
    print("sizes", turns, tuple(cache.shape))
