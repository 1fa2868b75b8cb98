"""Speech enhancement on waveforms: a U-Net of strided convolutions with an LSTM in the middle, L1 and STFT losses, noises remixed."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

SR = 16000


class NoisySpeech(Dataset):
    def __init__(self, n, seconds=4):
        self.n, self.length = n, SR * seconds

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        t = torch.arange(self.length) / SR
        clean = sum(torch.sin(2 * math.pi * f * t) for f in (torch.rand(3, generator=g) * 800 + 80).tolist()) / 3
        clean = clean * (0.5 + 0.5 * torch.sin(2 * math.pi * 3 * t))
        noise = 0.3 * torch.randn(self.length, generator=g)
        return noise[None], clean[None]


class Demucs(nn.Module):
    def __init__(self, hidden=64, depth=5, kernel=8, stride=4, resample=4):
        super().__init__()
        self.resample = resample
        self.encoder, self.decoder = nn.ModuleList(), nn.ModuleList()
        chin, chout = 1, hidden
        for index in range(depth):
            self.encoder.append(nn.Sequential(
                nn.Conv1d(chin, chout, kernel, stride, padding=2), nn.ReLU(),
                nn.Conv1d(chout, 2 * chout, 1), nn.GLU(1),
            ))
            decode = [nn.Conv1d(chout, 2 * chout, 1), nn.GLU(1), nn.ConvTranspose1d(chout, chin, kernel, stride, padding=2)]
            if index > 0:
                decode.append(nn.ReLU())
            self.decoder.insert(0, nn.Sequential(*decode))
            chin, chout = chout, 2 * chout
        self.lstm = nn.LSTM(chin, chin, num_layers=2, bidirectional=True, batch_first=True)
        self.linear = nn.Linear(2 * chin, chin)

    def forward(self, mix):
        length = mix.shape[-1]
        std = mix.std(dim=-1, keepdim=True) + 1e-3
        x = F.interpolate(mix / std, scale_factor=self.resample, mode="linear", align_corners=False)
        skips = []
        for encode in self.encoder:
            x = encode(x)
            skips.append(x)
        y, _ = self.lstm(x.transpose(1, 2))
        x = self.linear(y).transpose(1, 2)
        for decode in self.decoder:
            x = decode(x + skips.pop())
        return std * F.avg_pool1d(x, self.resample)[..., :length]


class MultiResolutionSTFTLoss(nn.Module):
    def __init__(self, ffts=(1024, 2048, 512), hops=(120, 240, 50), windows=(600, 1200, 240)):
        super().__init__()
        self.sizes = list(zip(ffts, hops, windows))
        for n, w in enumerate(windows):
            self.register_buffer(f"window{n}", torch.hann_window(w))

    def magnitude(self, x, n):
        fft, hop, win = self.sizes[n]
        s = torch.stft(x, fft, hop, win, getattr(self, f"window{n}"), return_complex=True)
        return torch.sqrt(torch.clamp(s.real**2 + s.imag**2, min=1e-7))

    def forward(self, x, y):
        loss = 0
        for n in range(len(self.sizes)):
            a, b = self.magnitude(x.squeeze(1), n), self.magnitude(y.squeeze(1), n)
            loss = loss + torch.norm(b - a, p="fro") / torch.norm(b, p="fro") + F.l1_loss(a.log(), b.log())
        return loss / len(self.sizes)


class Solver:
    def __init__(self, epochs=2, batch_size=32):
        self.device = "cuda"
        self.epochs = epochs
        self.model = Demucs().to(self.device)
        self.stft = MultiResolutionSTFTLoss().to(self.device)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=3e-4, betas=(0.9, 0.999))
        self.train_loader = DataLoader(NoisySpeech(20 * batch_size), batch_size, shuffle=True, num_workers=4, drop_last=True)
        self.valid_loader = DataLoader(NoisySpeech(2 * batch_size), batch_size)
        self.best = None

    def run_one_epoch(self, epoch):
        self.model.train()
        total = 0.0
        for i, (noise, clean) in enumerate(self.train_loader):
            noise, clean = noise.to(self.device), clean.to(self.device)
            noise = noise[torch.randperm(len(noise), device=noise.device)]
            estimate = self.model(noise + clean)
            loss = F.l1_loss(estimate, clean) + 0.5 * self.stft(estimate, clean)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            total += loss.item()
        return total / (i + 1)

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        scores = []
        for noise, clean in self.valid_loader:
            clean = clean.to(self.device)
            estimate = self.model(noise.to(self.device) + clean)
            target = (estimate * clean).sum(-1, keepdim=True) / clean.pow(2).sum(-1, keepdim=True) * clean
            scores.append(10 * torch.log10(target.pow(2).sum(-1) / (estimate - target).pow(2).sum(-1)))
        return torch.cat(scores).mean().item()

    def train(self):
        for epoch in range(self.epochs):
            loss, sisdr = self.run_one_epoch(epoch), self.validate()
            if self.best is None or sisdr > self.best[0]:
                self.best = (sisdr, {k: v.cpu().clone() for k, v in self.model.state_dict().items()})
            print(f"Epoch {epoch + 1} | train {loss:.4f} | si-sdr {sisdr:.2f} dB")


if __name__ == "__main__":
    torch.manual_seed(2036)
    Solver().train()
