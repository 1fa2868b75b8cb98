"""Utterances of all lengths are padded to the longest of their batch; memory climbs for hours (NVIDIA/tacotron2#39)."""
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Speech(Dataset):
    def __init__(self):
        g = torch.Generator().manual_seed(1)
        self.lengths = (torch.rand(6000, generator=g) ** 3 * 2800 + 60).int().tolist()

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, i):
        return torch.randn(self.lengths[i], 80)


def pad(items):
    return nn.utils.rnn.pad_sequence(items, batch_first=True)


net = nn.ModuleDict({"pre": nn.Sequential(nn.Linear(80, 1024), nn.ReLU(), nn.Dropout(0.5)), "rnn": nn.LSTM(1024, 1024, batch_first=True), "out": nn.Linear(1024, 80)}).cuda()
opt = torch.optim.Adam(net.parameters(), 1e-3)
for epoch in range(50):
    for mel in DataLoader(Speech(), 48, shuffle=True, collate_fn=pad):
        mel = mel.cuda()
        out = net["out"](net["rnn"](net["pre"](mel))[0])
        loss = (out - mel).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
