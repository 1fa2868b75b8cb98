"""A speech transducer: LSTM encoder, LSTM prediction network, a joint of (batch, time, labels, words) and the loss by hand."""

import torch
import torch.nn as nn

torch.manual_seed(0)
V, BLANK = 1024, 0


class Encoder(nn.Module):
    def __init__(self, feats=80, hid=640, layers=4):
        super().__init__()
        self.sub = nn.Sequential(nn.Conv1d(feats, hid, 3, 2, 1), nn.ReLU(), nn.Conv1d(hid, hid, 3, 2, 1), nn.ReLU())
        self.lstm = nn.LSTM(hid, hid, layers, batch_first=True, dropout=0.1)

    def forward(self, x):
        return self.lstm(self.sub(x.transpose(1, 2)).transpose(1, 2))[0]


class Predictor(nn.Module):
    def __init__(self, emb=256, hid=640):
        super().__init__()
        self.emb, self.lstm = nn.Embedding(V, emb), nn.LSTM(emb, hid, batch_first=True)

    def forward(self, y):
        start = torch.zeros(len(y), 1, dtype=torch.long, device=y.device)
        return self.lstm(self.emb(torch.cat([start, y], 1)))[0]


class Transducer(nn.Module):
    def __init__(self, joint=512):
        super().__init__()
        self.encoder, self.predictor = Encoder(), Predictor()
        self.enc, self.pred, self.out = nn.Linear(640, joint), nn.Linear(640, joint), nn.Linear(joint, V)

    def forward(self, x, y):
        h = self.enc(self.encoder(x)).unsqueeze(2) + self.pred(self.predictor(y)).unsqueeze(1)
        return self.out(torch.tanh(h))


def transducer_loss(logits, y):
    logp = logits.log_softmax(-1)
    blank = logp[..., BLANK]
    label = logp[:, :, :-1].gather(3, y[:, None, :, None].expand(-1, logp.size(1), -1, 1)).squeeze(3)
    B, T, U = blank.shape
    alpha = torch.cat([blank.new_zeros(B, 1), label[:, 0].cumsum(1)], 1)
    for t in range(1, T):
        up = alpha + blank[:, t - 1]
        row = [up[:, 0]]
        for u in range(1, U):
            row.append(torch.logaddexp(up[:, u], row[-1] + label[:, t, u - 1]))
        alpha = torch.stack(row, 1)
    return -(alpha[:, -1] + blank[:, -1, -1]).mean()


model = Transducer().cuda()
optim = torch.optim.AdamW(model.parameters(), lr=3e-4)
for step in range(12):
    x, y = torch.randn(32, 640, 80, device="cuda"), torch.randint(1, V, (32, 24), device="cuda")
    loss = transducer_loss(model(x, y), y)
    optim.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    optim.step()
    print(step, loss.item())
