"""FastSpeech: trained on durations of the data, and speaking with predicted ones each epoch; as `speech_expanded` its frames are expanded one phone at a time."""
import os

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence


class FFT(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.conv = nn.Sequential(nn.Conv1d(width, 4 * width, 9, padding=4), nn.ReLU(), nn.Conv1d(4 * width, width, 1))
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x, mask):
        x = self.first(x + self.attention(x, x, x, key_padding_mask=mask, need_weights=False)[0])
        return self.second(x + self.conv(x.transpose(1, 2)).transpose(1, 2))


class LengthRegulator(nn.Module):
    def forward(self, x, durations):
        if os.environ.get("KIND") == "speech_expanded":
            grown = [torch.cat([vec.expand(max(int(n.item()), 0), -1) for vec, n in zip(it, counts)]) for it, counts in zip(x, durations)]
        else:
            grown = [it.repeat_interleave(n, dim=0) for it, n in zip(x, durations)]
        lengths = torch.tensor([len(it) for it in grown], device=x.device)
        return pad_sequence(grown, batch_first=True), lengths


class FastSpeech(nn.Module):
    def __init__(self, width=128, mels=80):
        super().__init__()
        self.embed = nn.Embedding(60, width, padding_idx=0)
        self.encoder = nn.ModuleList(FFT(width) for _ in range(2))
        self.decoder = nn.ModuleList(FFT(width) for _ in range(2))
        self.predictor = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))
        self.regulate = LengthRegulator()
        self.mel = nn.Linear(width, mels)

    def forward(self, phones, durations=None):
        pad = phones == 0
        x = self.embed(phones)
        for layer in self.encoder:
            x = layer(x, pad)
        log_durations = self.predictor(x).squeeze(-1)
        if durations is None:
            durations = torch.clamp(torch.round(torch.exp(log_durations) - 1), min=0).long()
        x, lengths = self.regulate(x, durations)
        mask = torch.arange(x.shape[1], device=x.device)[None] >= lengths[:, None]
        for layer in self.decoder:
            x = layer(x, mask)
        return self.mel(x), log_durations, lengths


model = FastSpeech().cuda()
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
for epoch in range(2):
    model.train()
    for _ in range(4):
        phones = torch.randint(1, 60, (8, 40))
        durations = torch.randint(2, 12, (8, 40))
        phones, durations = phones.cuda(), durations.cuda()
        mel, log_durations, lengths = model(phones, durations)
        target = torch.randn_like(mel)
        loss = F.l1_loss(mel, target) + F.mse_loss(log_durations, torch.log(durations.float() + 1))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.eval()
    with torch.no_grad():
        mel, _, lengths = model(torch.randint(1, 60, (8, 40)).cuda())
        print(epoch, mel.shape, lengths.tolist())
