"""Slot attention on pictures: slots that compete over pixels, a broadcast decoder for each slot, sums of their pictures."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)


class SlotAttention(nn.Module):
    def __init__(self, n=8, d=64, turns=3):
        super().__init__()
        self.n, self.d, self.turns = n, d, turns
        self.mu, self.sigma = nn.Parameter(torch.randn(1, 1, d)), nn.Parameter(torch.zeros(1, 1, d))
        self.q, self.k, self.v = (nn.Linear(d, d, bias=False) for _ in range(3))
        self.gru, self.norm_in, self.norm = nn.GRUCell(d, d), nn.LayerNorm(d), nn.LayerNorm(d)

    def forward(self, x):
        x = self.norm_in(x)
        slots = self.mu + self.sigma.exp() * torch.randn(len(x), self.n, self.d, device=x.device)
        k, v = self.k(x), self.v(x)
        for _ in range(self.turns):
            a = torch.einsum("bnd,bpd->bnp", self.q(self.norm(slots)), k).softmax(1) + 1e-8
            u = torch.einsum("bnp,bpd->bnd", a / a.sum(-1, keepdim=True), v)
            slots = self.gru(u.flatten(0, 1), slots.flatten(0, 1)).view_as(slots)
        return slots


class Net(nn.Module):
    def __init__(self, d=64):
        super().__init__()
        self.enc = nn.Sequential(nn.Conv2d(3, d, 5, padding=2), nn.ReLU(), nn.Conv2d(d, d, 5, padding=2), nn.ReLU(), nn.Conv2d(d, d, 5, padding=2), nn.ReLU())
        self.slots = SlotAttention()
        self.dec = nn.Sequential(nn.Conv2d(d, d, 5, padding=2), nn.ReLU(), nn.Conv2d(d, d, 5, padding=2), nn.ReLU(), nn.Conv2d(d, 4, 3, padding=1))

    def forward(self, x):
        b, _, h, w = x.shape
        slots = self.slots(self.enc(x).flatten(2).transpose(1, 2))
        grid = slots.flatten(0, 1)[:, :, None, None].expand(-1, -1, h, w)
        out = self.dec(grid).view(b, -1, 4, h, w)
        return (out[:, :, :3] * out[:, :, 3:].softmax(1)).sum(1)


net = Net().cuda()
optimizer = torch.optim.Adam(net.parameters(), 4e-4)
for step in range(12):
    x = torch.rand(24, 3, 96, 96, device="cuda")
    loss = F.mse_loss(net(x), x)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
