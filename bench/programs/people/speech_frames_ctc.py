"""Convolutions and a transformer over log-mel frames, CTC with targets that are joined into one row, lengths beside."""
import random

import torch
from torch import nn

random.seed(1)
torch.manual_seed(1)


class Acoustic(nn.Module):
    def __init__(self, width=512, n_layers=12, n_tokens=1000):
        super().__init__()
        self.front = nn.Sequential(nn.Conv2d(1, 64, 3, 2, 1), nn.GELU(), nn.Conv2d(64, 64, 3, 2, 1), nn.GELU())
        self.proj = nn.Linear(64 * 20, width)
        layer = nn.TransformerEncoderLayer(width, 8, 2048, 0.1, "gelu", batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, n_layers, enable_nested_tensor=False)
        self.out = nn.Linear(width, n_tokens)

    def forward(self, mel, lengths):
        x = self.front(mel[:, None]).permute(0, 2, 1, 3).flatten(2)
        x = self.proj(x)
        padding = torch.arange(x.size(1), device=x.device) >= lengths[:, None]
        return self.out(self.encoder(x, src_key_padding_mask=padding)).log_softmax(-1)


model = Acoustic().cuda()
optimizer = torch.optim.AdamW(model.parameters(), 3e-4)
scaler = torch.amp.GradScaler("cuda")
loss_of = nn.CTCLoss(zero_infinity=True)
for step in range(12):
    frames = sorted((random.randrange(600, 1600) for _ in range(24)), reverse=True)
    mel = torch.randn(24, max(frames), 80)
    lengths = torch.tensor([-(-it // 4) for it in frames])
    n_words = torch.tensor([it // 16 for it in frames])
    words = torch.randint(1, 1000, (int(n_words.sum()),))
    with torch.autocast("cuda", torch.float16):
        said = model(mel.cuda(), lengths.cuda())
    loss = loss_of(said.float().transpose(0, 1), words, lengths, n_words)
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    scaler.step(optimizer)
    scaler.update()
    print(step, tuple(mel.shape), loss.item())
