"""Click prediction: 26 tables of embeddings with sparse gradients, SparseAdam beside AdamW, bags of several ids each."""
import torch
from torch import nn

torch.manual_seed(1)
ROWS = [2_000_000, 1_000_000, 500_000, 200_000] + [50_000] * 10 + [1000] * 12
BATCH, DIM, HOT = 32768, 64, 5


def mlp(*sizes):
    layers = []
    for a, b in zip(sizes, sizes[1:]):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class DLRM(nn.Module):
    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(n, DIM, mode="sum", sparse=True) for n in ROWS)
        self.bottom, self.top = mlp(13, 512, 256, DIM), mlp(DIM + 27 * 26 // 2, 1024, 1024, 512, 256, 1)
        self.register_buffer("pairs", torch.tril_indices(27, 27, -1))

    def forward(self, dense, ids, offsets):
        x = self.bottom(dense)
        bags = [table(i, offsets) for table, i in zip(self.tables, ids)]
        stacked = torch.stack([x, *bags], dim=1)
        products = torch.bmm(stacked, stacked.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        return self.top(torch.cat([x, products], dim=1)).squeeze(1)


model = DLRM().cuda()
sparse = torch.optim.SparseAdam(list(model.tables.parameters()), lr=1e-3)
dense = torch.optim.AdamW([*model.bottom.parameters(), *model.top.parameters()], lr=1e-3)
loss_fn = nn.BCEWithLogitsLoss()
offsets = torch.arange(0, BATCH * HOT, HOT).cuda()


def batches(n, seed):
    g = torch.Generator().manual_seed(seed)
    for _ in range(n):
        ids = [torch.randint(0, rows, (BATCH * HOT,), generator=g).cuda() for rows in ROWS]
        yield torch.rand(BATCH, 13, generator=g).cuda(), ids, (torch.rand(BATCH, generator=g) < 0.2).float().cuda()


for epoch in range(2):
    model.train()
    for step, (x, ids, y) in enumerate(batches(12, epoch)):
        loss = loss_fn(model(x, ids, offsets), y)
        sparse.zero_grad(set_to_none=True)
        dense.zero_grad(set_to_none=True)
        loss.backward()
        sparse.step()
        dense.step()
        if step % 4 == 0:
            print(epoch, step, round(loss.item(), 4))
    model.eval()
    with torch.no_grad():
        scores = [torch.sigmoid(model(x, ids, offsets)).mean() for x, ids, _ in batches(3, 99)]
    print("mean", torch.stack(scores).mean().item())
