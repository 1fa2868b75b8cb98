"""Steps instead of epochs: itertools.cycle repeats the loader, whose batches are on the GPU (bytedance/UNO#64, pytorch/pytorch#23900)."""
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Pairs(Dataset):
    def __len__(self):
        return 40000

    def __getitem__(self, i):
        picture = torch.randn(3, 256, 256, generator=torch.Generator().manual_seed(i))
        return {"picture": picture, "reference": picture.flip(-1)}


def to_gpu(samples):
    return {name: torch.stack([it[name] for it in samples]).cuda() for name in samples[0]}


net = nn.Sequential(nn.Conv2d(6, 64, 3, 2, 1), nn.SiLU(), nn.Conv2d(64, 64, 3, 1, 1), nn.SiLU(), nn.ConvTranspose2d(64, 3, 4, 2, 1)).cuda()
optimizer = torch.optim.AdamW(net.parameters(), 1e-4)


def endless(loader):
    while True:
        yield from loader


batches = endless(DataLoader(Pairs(), 8, shuffle=True, collate_fn=to_gpu))
for step in range(50000):
    batch = next(batches)
    noise = torch.randn_like(batch["picture"])
    loss = (net(torch.cat([batch["picture"] + noise, batch["reference"]], 1)) - noise).pow(2).mean()
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
