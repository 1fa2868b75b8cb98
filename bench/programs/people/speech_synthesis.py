"""Speech from text with predicted durations: lengths follow from the data, phonemes are repeated, postnet, Noam schedule, accumulation."""
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pad_sequence

BATCH, DIM, MELS = 48, 384, 80


class FFT(nn.Module):
    def __init__(self, d=DIM, heads=4, inner=1536):
        super().__init__()
        self.attention = nn.MultiheadAttention(d, heads, dropout=0.1, batch_first=True)
        self.conv1, self.conv2 = nn.Conv1d(d, inner, 9, padding=4), nn.Conv1d(inner, d, 1)
        self.norm1, self.norm2, self.dropout = nn.LayerNorm(d), nn.LayerNorm(d), nn.Dropout(0.1)

    def forward(self, x, padding):
        x = self.norm1(x + self.dropout(self.attention(x, x, x, key_padding_mask=padding, need_weights=False)[0]))
        y = self.conv2(F.relu(self.conv1(x.transpose(1, 2)))).transpose(1, 2)
        return self.norm2(x + self.dropout(y)).masked_fill(padding.unsqueeze(2), 0.0)


class FastSpeech(nn.Module):
    def __init__(self):
        super().__init__()
        self.phonemes, self.place = nn.Embedding(150, DIM, padding_idx=0), nn.Embedding(3000, DIM)
        self.encoder, self.decoder = (nn.ModuleList(FFT() for _ in range(6)) for _ in range(2))
        self.durations = nn.Sequential(nn.Linear(DIM, 256), nn.ReLU(), nn.LayerNorm(256), nn.Dropout(0.5), nn.Linear(256, 1))
        self.mel = nn.Linear(DIM, MELS)
        layers = [nn.Sequential(nn.Conv1d(i, o, 5, padding=2), nn.BatchNorm1d(o), nn.Tanh()) for i, o in [(MELS, 512), (512, 512), (512, 512)]]
        self.postnet = nn.Sequential(*layers, nn.Conv1d(512, MELS, 5, padding=2))

    def forward(self, text, durations):
        padding = text == 0
        x = self.phonemes(text) + self.place.weight[: text.shape[1]]
        for it in self.encoder:
            x = it(x, padding)
        logs = self.durations(x.detach()).squeeze(2)
        x = pad_sequence([row.repeat_interleave(n, dim=0) for row, n in zip(x, durations)], batch_first=True)
        lengths = durations.sum(1)
        padding = torch.arange(x.shape[1], device=x.device) >= lengths.unsqueeze(1)
        x = x + self.place.weight[: x.shape[1]]
        for it in self.decoder:
            x = it(x, padding)
        mel = self.mel(x)
        return mel, mel + self.postnet(mel.transpose(1, 2)).transpose(1, 2), logs, padding


torch.manual_seed(2)
model = FastSpeech().cuda()
optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9, lr=1.0)
noam = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: DIM**-0.5 * min((n + 1) ** -0.5, (n + 1) * 4000**-1.5))
g = torch.Generator().manual_seed(0)


def batch():
    lengths = torch.randint(60, 140, (BATCH,), generator=g)
    text = pad_sequence([torch.randint(1, 150, (n,), generator=g) for n in lengths.tolist()], batch_first=True)
    durations = torch.randint(2, 12, text.shape, generator=g) * (text != 0)
    return text.cuda(), durations.cuda()


for step in range(24):
    model.train()
    text, durations = batch()
    mel, better, logs, padding = model(text, durations)
    target = torch.randn_like(mel)
    keep = ~padding.unsqueeze(2)
    loss = ((mel - target).abs() * keep).sum() / keep.sum() / MELS + ((better - target).abs() * keep).sum() / keep.sum() / MELS
    loss = loss + F.mse_loss(logs[text != 0], (durations[text != 0] + 1.0).log())
    (loss / 2).backward()
    if step % 2 == 1:
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        noam.step()
        optimizer.zero_grad(set_to_none=True)
        print(step, loss.item())
