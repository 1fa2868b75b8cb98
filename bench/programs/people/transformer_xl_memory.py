"""A language model whose layers remember the hidden states of the last segments (Transformer-XL); adaptive softmax."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Layer(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.h = h
        self.q, self.kv, self.o = nn.Linear(d, d), nn.Linear(d, 2 * d), nn.Linear(d, d)
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.ff = nn.Sequential(nn.Linear(d, 4 * d), nn.ReLU(inplace=True), nn.Dropout(0.1), nn.Linear(4 * d, d))

    def forward(self, x, memory, mask):
        b, t, d = x.shape
        context = torch.cat([memory, x], 1)
        q = self.q(x).view(b, t, self.h, -1).transpose(1, 2)
        k, v = (it.view(b, -1, self.h, d // self.h).transpose(1, 2) for it in self.kv(context).chunk(2, -1))
        scores = (q @ k.transpose(-1, -2)) * (d // self.h) ** -0.5
        w = F.dropout(scores.masked_fill(mask, float("-inf")).softmax(-1), 0.1, self.training)
        x = self.n1(x + self.o((w @ v).transpose(1, 2).reshape(b, t, d)))
        return self.n2(x + self.ff(x))


class XL(nn.Module):
    def __init__(self, vocab=60000, d=768, layers=12, memory=384):
        super().__init__()
        self.embed = nn.Embedding(vocab, d)
        self.layers = nn.ModuleList(Layer(d, 12) for _ in range(layers))
        self.out = nn.AdaptiveLogSoftmaxWithLoss(d, vocab, cutoffs=[4000, 20000])
        self.memory = memory

    def forward(self, ids, targets, memories):
        x, kept = self.embed(ids), []
        t, m = ids.shape[1], memories[0].shape[1]
        mask = torch.ones(t, t + m, dtype=torch.bool, device=ids.device).triu(m + 1)
        for layer, memory in zip(self.layers, memories):
            kept.append(torch.cat([memory, x], 1)[:, -self.memory :].detach())
            x = layer(x, memory, mask)
        return self.out(x.flatten(0, 1), targets.flatten()).loss, kept


torch.manual_seed(0)
text = torch.randint(0, 60000, (24, 384 * 40 + 1))
model = XL().cuda()
optimizer = torch.optim.Adam(model.parameters(), 2.5e-4)
memories = [torch.zeros(24, 0, 768, device="cuda") for _ in model.layers]
for step in range(40):
    piece = text[:, step * 384 : step * 384 + 385].cuda()
    loss, memories = model(piece[:, :-1], piece[:, 1:], memories)
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
    optimizer.step()
    if step % 10 == 0:
        print(step, loss.item())
