"""A WaveNet on mu-law samples: dilated causal convolutions with gates, residuals and skips; crops from long recordings on the host."""
import torch
import torch.nn.functional as F
from torch import nn


class Layer(nn.Module):
    def __init__(self, c, dilation):
        super().__init__()
        self.dilation = dilation
        self.both = nn.Conv1d(c, 2 * c, 2, dilation=dilation)
        self.residual, self.skip = nn.Conv1d(c, c, 1), nn.Conv1d(c, 256, 1)

    def forward(self, x):
        a, b = self.both(F.pad(x, (self.dilation, 0))).chunk(2, 1)
        z = torch.tanh(a) * torch.sigmoid(b)
        return x + self.residual(z), self.skip(z)


class WaveNet(nn.Module):
    def __init__(self, c=96, stacks=3, layers=10):
        super().__init__()
        self.embed = nn.Embedding(256, c)
        self.layers = nn.ModuleList([Layer(c, 2**n) for _ in range(stacks) for n in range(layers)])
        self.out = nn.Sequential(nn.ReLU(), nn.Conv1d(256, 256, 1), nn.ReLU(), nn.Conv1d(256, 256, 1))

    def forward(self, samples):
        x, total = self.embed(samples).transpose(1, 2), 0
        for layer in self.layers:
            x, skip = layer(x)
            total = total + skip
        return self.out(total)


def mu_law(x, mu=255):
    return ((torch.sign(x) * torch.log1p(mu * x.abs()) / torch.log1p(torch.tensor(float(mu))) + 1) / 2 * mu).long()


torch.manual_seed(0)
recordings = torch.rand(20, 160_000) * 2 - 1
net = WaveNet().cuda()
optimizer = torch.optim.Adam(net.parameters(), 1e-3)
for step in range(50):
    which, at = torch.randint(0, 20, (6,)), torch.randint(0, 160_000 - 16_001, (6,))
    crops = torch.stack([recordings[i, j : j + 16_001] for i, j in zip(which.tolist(), at.tolist())])
    samples = mu_law(crops).cuda()
    loss = F.cross_entropy(net(samples[:, :-1]), samples[:, 1:])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(step, loss.item())
