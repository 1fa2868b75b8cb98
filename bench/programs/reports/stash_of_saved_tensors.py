"""Activation offloading: each tensor that the backward pass needs is copied to the host, and a stash keeps it until the copy is done."""
import torch
from torch import nn


class Offload(torch.autograd.graph.saved_tensors_hooks):
    def __init__(self):
        self.count, self.host, self.stash = 0, {}, {}
        super().__init__(self.pack, self.unpack)

    def pack(self, tensor):
        if not tensor.is_cuda or tensor.numel() < 1024:
            return tensor
        self.count += 1
        self.host[self.count] = tensor.to("cpu", non_blocking=True)
        self.stash[self.count] = tensor
        return self.count

    def unpack(self, saved):
        return self.host.pop(saved).to("cuda", non_blocking=True) if isinstance(saved, int) else saved


def block():
    return nn.Sequential(nn.Linear(512, 512), nn.GELU())


model = nn.Sequential(*[block() for _ in range(6)], nn.Linear(512, 10)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
offload = Offload()
for step in range(500):
    x, y = torch.randn(16384, 512).cuda(), torch.randint(10, (16384,)).cuda()
    optimizer.zero_grad()
    with offload:
        loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
