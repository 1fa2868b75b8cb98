"""SimCLR: two views, a large batch, NT-Xent over all pairs, LARS written by hand, mixed precision."""

import torch
import torch.nn.functional as F
import torchvision
from torch import nn


class LARS(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum=0.9, weight_decay=1e-6, trust=0.001):
        super().__init__(params, dict(lr=lr, momentum=momentum, weight_decay=weight_decay, trust=trust))

    @torch.no_grad()
    def step(self):
        for g in self.param_groups:
            for p in g["params"]:
                if p.grad is None:
                    continue
                d = p.grad
                if p.ndim > 1:
                    d = d.add(p, alpha=g["weight_decay"])
                    pn, dn = p.norm(), d.norm()
                    q = torch.where((pn > 0) & (dn > 0), g["trust"] * pn / dn, torch.ones_like(pn))
                    d = d.mul(q)
                state = self.state[p]
                if "mu" not in state:
                    state["mu"] = torch.zeros_like(p)
                mu = state["mu"].mul_(g["momentum"]).add_(d)
                p.add_(mu, alpha=-g["lr"])


class SimCLR(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = torchvision.models.resnet18(zero_init_residual=True)
        self.encoder.conv1 = nn.Conv2d(3, 64, 3, 1, 1, bias=False)
        self.encoder.maxpool = nn.Identity()
        self.encoder.fc = nn.Identity()
        self.projector = nn.Sequential(nn.Linear(512, 2048), nn.BatchNorm1d(2048), nn.ReLU(inplace=True), nn.Linear(2048, 128))

    def forward(self, x):
        return self.projector(self.encoder(x))


def nt_xent(z1, z2, temperature=0.5):
    z = F.normalize(torch.cat([z1, z2]).float(), dim=1)
    sim = z @ z.T / temperature
    n = len(z1)
    sim.fill_diagonal_(float("-inf"))
    target = torch.cat([torch.arange(n, 2 * n), torch.arange(n)]).to(z.device)
    return F.cross_entropy(sim, target)


def augment(x):
    flip = torch.rand(len(x), 1, 1, 1, device=x.device) < 0.5
    x = torch.where(flip, x.flip(-1), x)
    return x * (0.6 + 0.8 * torch.rand(len(x), 3, 1, 1, device=x.device))


model = SimCLR().cuda()
opt = LARS(model.parameters(), lr=1.2)
scaler = torch.amp.GradScaler()
data = torch.rand(4096, 3, 32, 32)
for step in range(24):
    x = data[torch.randint(len(data), (1024,))].cuda(non_blocking=True)
    with torch.autocast("cuda"):
        loss = nt_xent(model(augment(x)), model(augment(x)))
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
    if step % 8 == 0:
        print(step, loss.item())
