"""A Fourier neural operator: spectral weights of complex numbers, three steps of a rollout, relative L2, a plateau schedule by validation."""
import torch
import torch.nn.functional as F
from torch import nn

SIZE, WIDTH, MODES, BATCH = 128, 64, 32, 24


class Spectral(nn.Module):
    def __init__(self):
        super().__init__()
        scale = 1 / WIDTH**2
        self.low = nn.Parameter(scale * torch.randn(WIDTH, WIDTH, MODES, MODES, dtype=torch.cfloat))
        self.high = nn.Parameter(scale * torch.randn(WIDTH, WIDTH, MODES, MODES, dtype=torch.cfloat))

    def forward(self, x):
        spectrum = torch.fft.rfft2(x)
        out = torch.zeros(len(x), WIDTH, SIZE, SIZE // 2 + 1, dtype=torch.cfloat, device=x.device)
        out[:, :, :MODES, :MODES] = torch.einsum("bixy,ioxy->boxy", spectrum[:, :, :MODES, :MODES], self.low)
        out[:, :, -MODES:, :MODES] = torch.einsum("bixy,ioxy->boxy", spectrum[:, :, -MODES:, :MODES], self.high)
        return torch.fft.irfft2(out, s=(SIZE, SIZE))


class FNO(nn.Module):
    def __init__(self, layers=4):
        super().__init__()
        self.lift = nn.Conv2d(3, WIDTH, 1)
        self.spectral = nn.ModuleList([Spectral() for _ in range(layers)])
        self.local = nn.ModuleList([nn.Conv2d(WIDTH, WIDTH, 1) for _ in range(layers)])
        self.norms = nn.ModuleList([nn.InstanceNorm2d(WIDTH, affine=True) for _ in range(layers)])
        self.project = nn.Sequential(nn.Conv2d(WIDTH, 128, 1), nn.GELU(), nn.Conv2d(128, 1, 1))
        line = torch.linspace(0, 1, SIZE)
        self.register_buffer("grid", torch.stack(torch.meshgrid(line, line, indexing="ij")))

    def forward(self, u):
        x = self.lift(torch.cat([u, self.grid.expand(len(u), -1, -1, -1)], 1))
        for spectral, local, norm in zip(self.spectral, self.local, self.norms):
            x = F.gelu(norm(spectral(x)) + local(x))
        return self.project(x)


def apart(a, b):
    return ((a - b).flatten(1).norm(dim=1) / b.flatten(1).norm(dim=1)).mean()


torch.manual_seed(0)
fields = torch.randn(200, 4, SIZE, SIZE)
model = FNO().cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=2)
for epoch in range(8):
    for at in range(0, 168, BATCH):
        u = fields[at : at + BATCH].cuda()
        now, loss = u[:, :1], 0
        for step in range(3):
            now = now + model(now)
            loss = loss + apart(now, u[:, step + 1 : step + 2])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        u = fields[176:].cuda()
        held = apart(u[:, :1] + model(u[:, :1]), u[:, 1:2])
    plateau.step(held)
    print(epoch, loss.item(), held.item())
