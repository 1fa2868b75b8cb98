"""A speech recogniser on mel spectrograms of 1 to 16 seconds, bucketed by length so that a batch has about as many frames, CTC loss."""
import random
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

class Speech(Dataset):
    def __init__(self, n, seed):
        r = random.Random(seed)
        self.frames = [int(100 * min(16, max(1, r.gammavariate(3, 2)))) for _ in range(n)]
    def __len__(self): return len(self.frames)
    def __getitem__(self, i):
        n = self.frames[i]
        return {"mel": torch.randn(80, n), "text": torch.randint(1, 40, (n // 12 + 1,))}

class Packed(Sampler):
    def __init__(self, frames, most): self.frames, self.most = frames, most
    def __iter__(self):
        order = list(range(len(self.frames)))
        random.shuffle(order)
        batch, longest = [], 0
        for i in order:
            longest = max(longest, self.frames[i])
            if batch and longest * (len(batch) + 1) > self.most:
                yield batch
                batch, longest = [], self.frames[i]
            batch.append(i)
        yield batch
    def __len__(self): return sum(self.frames) // self.most + 1

def collate(rows):
    most = max(it["mel"].shape[1] for it in rows)
    mel = torch.zeros(len(rows), 80, most)
    for i, it in enumerate(rows): mel[i, :, : it["mel"].shape[1]] = it["mel"]
    return mel, torch.tensor([it["mel"].shape[1] // 4 for it in rows]), torch.cat([it["text"] for it in rows]), torch.tensor([len(it["text"]) for it in rows])

class Recogniser(nn.Module):
    def __init__(self, width=640):
        super().__init__()
        self.front = nn.Sequential(nn.Conv1d(80, width, 3, 2, 1), nn.GELU(), nn.Conv1d(width, width, 3, 2, 1), nn.GELU())
        layer = nn.TransformerEncoderLayer(width, 10, 4 * width, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, 16, enable_nested_tensor=False)
        self.head = nn.Linear(width, 40)
    def forward(self, mel): return self.head(self.body(self.front(mel).transpose(1, 2))).log_softmax(-1)

data = Speech(4000, 0)
train = DataLoader(data, batch_sampler=Packed(data.frames, 40000), collate_fn=collate, num_workers=2)
valid = DataLoader(Speech(200, 1), batch_size=8, collate_fn=collate)
model = Recogniser().cuda()
opt = torch.optim.AdamW(model.parameters(), 3e-4)
ctc = nn.CTCLoss(zero_infinity=True)
step = 0
for epoch in range(2):
    for mel, n, text, m in train:
        loss = ctc(model(mel.cuda()).transpose(0, 1), text.cuda(), n, m)
        opt.zero_grad(set_to_none=True); loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step(); step += 1
        if step % 50 == 0:
            model.eval()
            with torch.inference_mode():
                val = sum(ctc(model(mel.cuda()).transpose(0, 1), text.cuda(), n, m).item() for mel, n, text, m in valid)
            model.train(); print(step, val)
