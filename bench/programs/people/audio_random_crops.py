"""Speech commands from waveforms: every worker draws from numpy's generator how long its crops are; padded by the collate function, GradScaler and fp16."""

import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset


class Clips(Dataset):
    def __len__(self):
        return 4000

    def __getitem__(self, i):
        n = int(np.random.randint(8_000, 32_000))
        wave = np.sin(np.arange(n, dtype=np.float32) * (0.01 + i * 1e-5)) + np.random.randn(n).astype(np.float32) * 0.1
        return torch.from_numpy(wave), i % 35


def collate(samples):
    waves, labels = zip(*samples)
    lengths = torch.tensor([len(it) for it in waves])
    return pad_sequence(waves, batch_first=True), lengths, torch.tensor(labels)


class Net(nn.Module):
    def __init__(self, width=512, depth=8):
        super().__init__()
        self.front = nn.Sequential(*[nn.Sequential(nn.Conv1d(a, width, k, s, bias=False), nn.GroupNorm(32, width), nn.GELU()) for a, k, s in ((1, 10, 5), (width, 3, 2), (width, 3, 2), (width, 3, 2), (width, 2, 2))])
        layer = nn.TransformerEncoderLayer(width, 8, 2048, dropout=0.1, activation="gelu", batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.Linear(width, 35)

    def forward(self, wave, lengths):
        x = self.front(wave.unsqueeze(1)).transpose(1, 2)
        n = (lengths.float() / wave.size(1) * x.size(1)).ceil().long()
        padding = torch.arange(x.size(1), device=x.device)[None] >= n[:, None]
        x = self.encoder(x, src_key_padding_mask=padding)
        return self.head((x * ~padding[..., None]).sum(1) / n[:, None])


def main():
    torch.manual_seed(0)
    model = Net().cuda()
    optimizer = torch.optim.Adam(model.parameters(), 1e-4)
    scaler = torch.amp.GradScaler("cuda")
    for epoch in range(3):
        for wave, lengths, labels in DataLoader(Clips(), 64, shuffle=True, num_workers=4, collate_fn=collate, pin_memory=True):
            with torch.autocast("cuda", torch.float16):
                loss = nn.functional.cross_entropy(model(wave.cuda(), lengths.cuda()), labels.cuda())
            optimizer.zero_grad(set_to_none=True)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            scaler.step(optimizer)
            scaler.update()
        print(epoch, float(loss))


if __name__ == "__main__":
    main()
