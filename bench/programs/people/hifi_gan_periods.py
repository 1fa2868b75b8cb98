"""A vocoder: a generator of waveforms against discriminators of several periods, two optimizers, features matched."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import weight_norm


class Residual(nn.Module):
    def __init__(self, channels, kernel):
        super().__init__()
        convolution = lambda d: weight_norm(nn.Conv1d(channels, channels, kernel, dilation=d, padding=d * (kernel - 1) // 2))
        self.ones, self.twos = nn.ModuleList([convolution(d) for d in (1, 3, 5)]), nn.ModuleList([convolution(1) for _ in range(3)])

    def forward(self, x):
        for one, two in zip(self.ones, self.twos):
            x = x + two(F.leaky_relu(one(F.leaky_relu(x, 0.1)), 0.1))
        return x


class Generator(nn.Module):
    def __init__(self, width=512, rates=(8, 8, 2, 2)):
        super().__init__()
        self.first = weight_norm(nn.Conv1d(80, width, 7, padding=3))
        self.ups, self.mixes = nn.ModuleList(), nn.ModuleList()
        for at, rate in enumerate(rates):
            a, b = width >> at, width >> (at + 1)
            self.ups.append(weight_norm(nn.ConvTranspose1d(a, b, 2 * rate, rate, padding=rate // 2)))
            self.mixes.append(nn.ModuleList([Residual(b, kernel) for kernel in (3, 7, 11)]))
        self.last = weight_norm(nn.Conv1d(width >> len(rates), 1, 7, padding=3))

    def forward(self, mel):
        x = self.first(mel)
        for up, mix in zip(self.ups, self.mixes):
            x = up(F.leaky_relu(x, 0.1))
            x = sum(it(x) for it in mix) / len(mix)
        return torch.tanh(self.last(F.leaky_relu(x)))


class Period(nn.Module):
    def __init__(self, period):
        super().__init__()
        self.period = period
        sizes = (1, 32, 128, 512, 1024)
        self.layers = nn.ModuleList([weight_norm(nn.Conv2d(a, b, (5, 1), (3, 1), padding=(2, 0))) for a, b in zip(sizes, sizes[1:])])
        self.last = weight_norm(nn.Conv2d(1024, 1, (3, 1), padding=(1, 0)))

    def forward(self, x):
        x = F.pad(x, (0, -x.shape[-1] % self.period), "reflect").view(len(x), 1, -1, self.period)
        kept = []
        for layer in self.layers:
            x = F.leaky_relu(layer(x), 0.1)
            kept.append(x)
        return self.last(x), kept


torch.manual_seed(0)
generator = Generator().cuda()
critics = nn.ModuleList([Period(it) for it in (2, 3, 5, 7, 11)]).cuda()
for_generator = torch.optim.AdamW(generator.parameters(), 2e-4, (0.8, 0.99))
for_critics = torch.optim.AdamW(critics.parameters(), 2e-4, (0.8, 0.99))
window = torch.hann_window(1024).cuda()


def spectrum(wave):
    return torch.log(torch.stft(wave.squeeze(1), 1024, 256, window=window, return_complex=True).abs() + 1e-5)


for step in range(40):
    mel, real = torch.randn(32, 80, 32).cuda(), (torch.rand(32, 1, 8192) * 2 - 1).cuda()
    fake = generator(mel)
    for_critics.zero_grad()
    loss = sum(((1 - critic(real)[0]) ** 2).mean() + (critic(fake.detach())[0] ** 2).mean() for critic in critics)
    loss.backward()
    for_critics.step()
    for_generator.zero_grad()
    loss = 45 * F.l1_loss(spectrum(fake), spectrum(real))
    for critic in critics:
        (judged, mine), (_, theirs) = critic(fake), critic(real)
        loss = loss + ((1 - judged) ** 2).mean() + 2 * sum(F.l1_loss(a, b) for a, b in zip(mine, theirs))
    loss.backward()
    for_generator.step()
print("done", loss.item())
