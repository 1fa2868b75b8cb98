"""cause: leak/earlier-models at line 31
also right: line 37
memory: 2GiB
why: one Accelerator for a whole sweep: it remembers every model and optimizer that it prepared, until somebody calls free_memory().
"""
import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Classifier(nn.Module):
    def __init__(self, width, dropout):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(128, width), nn.ReLU(), nn.Dropout(dropout), nn.Linear(width, width), nn.ReLU(), nn.Dropout(dropout), nn.Linear(width, 10)
        )

    def forward(self, x):
        return self.net(x)


data = TensorDataset(torch.randn(512, 128), torch.randint(0, 10, (512,)))
accelerator = Accelerator()


def trial(width, dropout, lr):
    model = Classifier(width, dropout)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    loader = DataLoader(data, batch_size=64, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)  # here
    model.train()
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
    model.eval()
    right = 0
    with torch.no_grad():
        for x, y in loader:
            right += (model(x).argmax(1) == y).sum().item()
    return right / len(data)


results = {}
for width in (1536, 2048, 2560, 3072):
    for dropout in (0.0, 0.2, 0.5):
        for lr in (1e-4, 1e-3):
            results[width, dropout, lr] = trial(width, dropout, lr)
            print(width, dropout, lr, results[width, dropout, lr])
print(max(results, key=results.get))
