"""Samples of variable length, padded by the collate function, sorted, with their lengths; CTC; GradScaler there already."""

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence


class Recordings(torch.utils.data.Dataset):
    def __init__(self, n, longest):
        self.n, self.longest = n, longest

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        frames = int(torch.randint(self.longest // 2, self.longest + 1, (), generator=g))
        return torch.randn(frames, 80, generator=g), torch.randint(1, 32, (frames // 16,), generator=g)


def collate(batch):
    batch.sort(key=lambda it: -len(it[0]))
    x, y = [it[0] for it in batch], [it[1] for it in batch]
    return pad_sequence(x, batch_first=True), torch.tensor([len(i) for i in x]), torch.cat(y), torch.tensor([len(i) for i in y])


class Listener(nn.Module):
    def __init__(self, width=640, layers=5):
        super().__init__()
        self.front = nn.Sequential(
            nn.Conv1d(80, width, 5, padding=2), nn.BatchNorm1d(width), nn.GELU(),
            nn.Conv1d(width, width, 5, stride=2, padding=2), nn.BatchNorm1d(width), nn.GELU(),
        )
        self.rnn = nn.LSTM(width, width, layers, bidirectional=True, batch_first=True)
        self.head = nn.Linear(2 * width, 32)

    def forward(self, x, lengths):
        x = self.front(x.transpose(1, 2)).transpose(1, 2)
        lengths = (lengths + 1) // 2
        packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True)
        x, _ = pad_packed_sequence(self.rnn(packed)[0], batch_first=True)
        return self.head(x).log_softmax(-1), lengths


def main():
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = Listener().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), 3e-4)
    ctc = nn.CTCLoss(zero_infinity=True)
    loader = torch.utils.data.DataLoader(Recordings(960, 1600), batch_size=64, collate_fn=collate, shuffle=True)
    for epoch in range(2):
        for x, x_len, y, y_len in loader:
            log_probs, out_len = model(x.to(device), x_len)
            loss = ctc(log_probs.transpose(0, 1), y.to(device), out_len, y_len)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 400)
            optimizer.step()


if __name__ == "__main__":
    main()
