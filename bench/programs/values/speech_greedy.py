"""Speech: lengths of all kinds, frames stacked and masked, CTC, a greedy reading each step, and a second loss over frames that are padded by neither."""
import os
import torch
from torch import nn
import torch.nn.functional as F

device = os.environ.get("DEVICE", "cuda")
torch.manual_seed(8)
rng = torch.Generator().manual_seed(8)
front = nn.Sequential(nn.Conv2d(1, 32, 3, 2, 1), nn.ReLU(), nn.Conv2d(32, 32, 3, 2, 1), nn.ReLU()).to(device)
body = nn.LSTM(32 * 20, 320, 2, batch_first=True, bidirectional=True).to(device)
head, teacher = nn.Linear(640, 32).to(device), nn.Linear(640, 80 * 4).to(device)
parameters = [*front.parameters(), *body.parameters(), *head.parameters(), *teacher.parameters()]
optimizer = torch.optim.AdamW(parameters, 1e-3)
for step in range(6):
    lengths = torch.randint(200, 900, (12,), generator=rng)
    frames = torch.randn(12, int(lengths.max()), 80, generator=rng)
    texts = [torch.randint(1, 32, (int(n) // 16,), generator=rng) for n in lengths]
    x, n = frames.to(device), lengths.to(device)
    x = x * (torch.arange(x.shape[1], device=device)[None] < n[:, None])[..., None]
    # SpecAugment: spans of time and bands are hidden.
    begin = (torch.rand(12, 2, device=device) * n[:, None] * 0.8).long()
    times = torch.arange(x.shape[1], device=device)
    hidden = ((times >= begin[..., None]) & (times < begin[..., None] + 40)).any(1)
    x = x.masked_fill(hidden[..., None], 0.0)
    y = front(x[:, None])
    out = (n + 3) // 4
    y = y.transpose(1, 2).flatten(2)
    packed = nn.utils.rnn.pack_padded_sequence(y, out.cpu(), batch_first=True, enforce_sorted=False)
    y, _ = nn.utils.rnn.pad_packed_sequence(body(packed)[0], batch_first=True)
    logits = head(y).log_softmax(-1)
    loss = F.ctc_loss(logits.transpose(0, 1), torch.cat(texts).to(device), out, torch.tensor([len(t) for t in texts]).to(device), zero_infinity=True)
    # Hidden frames are told from what is around them.
    seen = (torch.arange(y.shape[1], device=device)[None] < out[:, None]) & F.max_pool1d(hidden[:, None].float(), 4, 4, ceil_mode=True)[:, 0, :y.shape[1]].bool()
    guess = teacher(y[seen])
    wanted = F.pad(frames.to(device), (0, 0, 0, 4 * y.shape[1] - frames.shape[1])).view(12, y.shape[1], 320)[seen]
    loss = loss + F.l1_loss(guess, wanted)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(parameters, 5.0)
    optimizer.step()
    with torch.no_grad():
        best = logits.argmax(-1)
        words = []
        for row, m in zip(best, out.tolist()):
            row = torch.unique_consecutive(row[:m])
            words.append(row[row != 0].tolist())
    print("sizes", step, x.shape[1], int(seen.sum()), sum(map(len, texts)))
