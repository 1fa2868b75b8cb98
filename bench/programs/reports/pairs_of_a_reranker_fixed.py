"""A reranker scores all candidates of a query as one batch, and one query in fifty has 2,000 instead of 40."""
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Queries(Dataset):
    def __init__(self, n=1500):
        self.candidates = [2000 if i % 50 == 49 else 40 for i in range(n)]

    def __len__(self):
        return len(self.candidates)

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        self.candidates[i] = min(self.candidates[i], 64)
        return torch.randint(0, 20000, (self.candidates[i], 128), generator=g), torch.randint(0, 2, (self.candidates[i],), generator=g).float()


class Reranker(nn.Module):
    def __init__(self, dim=256):
        super().__init__()
        self.embed = nn.Embedding(20000, dim)
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(dim, 4, 1024, batch_first=True), 4)
        self.score = nn.Linear(dim, 1)

    def forward(self, ids):
        return self.score(self.encoder(self.embed(ids))[:, 0]).squeeze(-1)


model = Reranker().cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
loss_fn = nn.BCEWithLogitsLoss()
for epoch in range(2):
    for ids, y in DataLoader(Queries(), batch_size=None, shuffle=True):
        loss = loss_fn(model(ids.cuda()), y.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
