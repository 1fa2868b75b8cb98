"""Active learning: 40 passes with dropout over the whole pool are stacked on the GPU before their entropy is taken."""
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Segmenter(nn.Module):
    def __init__(self, classes=19):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(3, 32, 3, 1, 1), nn.BatchNorm2d(32), nn.ReLU(), nn.Dropout2d(0.2), nn.Conv2d(32, 32, 3, 1, 1), nn.ReLU(), nn.Dropout2d(0.2), nn.Conv2d(32, classes, 1))

    def forward(self, x):
        return self.net(x)


def train_round(model, loader, optimizer):
    model.train()
    for x, y in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(x.cuda()), y.cuda()).backward()
        optimizer.step()


@torch.no_grad()
def uncertainty(model, pool, passes=40):
    model.eval()
    for m in model.modules():
        if isinstance(m, nn.Dropout2d):
            m.train()
    votes = []
    for _ in range(passes):
        votes.append(torch.cat([model(x.cuda()).softmax(1) for (x,) in pool]))
    mean = torch.stack(votes).mean(0)
    return -(mean * mean.clamp_min(1e-9).log()).sum(1).mean((1, 2))


model = Segmenter().cuda()
optimizer = torch.optim.Adam(model.parameters())
labelled = DataLoader(TensorDataset(torch.rand(64, 3, 128, 128), torch.randint(0, 19, (64, 128, 128))), batch_size=8, shuffle=True)
pool = DataLoader(TensorDataset(torch.rand(512, 3, 128, 128)), batch_size=32)
for turn in range(10):
    train_round(model, labelled, optimizer)
    scores = uncertainty(model, pool)
    picked = scores.topk(16).indices.cpu()
