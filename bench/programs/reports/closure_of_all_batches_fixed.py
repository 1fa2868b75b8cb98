"""L-BFGS on the whole training set: the closure goes back batch by batch."""
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Fields(Dataset):
    """Solutions of a flow, as pairs of what is given and what comes of it."""

    def __init__(self, n, size=128):
        self.n = n
        self.given, self.wanted = torch.zeros(3, size, size), torch.zeros(2, size, size)

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return self.given, self.wanted


def double(inside, outside):
    return nn.Sequential(
        nn.Conv2d(inside, outside, 3, padding=1), nn.Tanh(),
        nn.Conv2d(outside, outside, 3, padding=1), nn.Tanh(),
    )


class Surrogate(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.first = double(3, width)
        self.middle = double(width, width)
        self.last = nn.Conv2d(width, 2, 1)

    def forward(self, x):
        x = self.first(x)
        return self.last(x + self.middle(x))


def main():
    device = torch.device("cuda")
    model = Surrogate().to(device)
    loader = DataLoader(Fields(1200), batch_size=24)
    criterion = nn.MSELoss()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=10, history_size=10, line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        total = 0.0
        for given, wanted in loader:
            loss = criterion(model(given.to(device)), wanted.to(device)) * len(given) / len(loader.dataset)
            loss.backward()
            total = total + loss.detach()
        return total

    for epoch in range(20):
        value = optimizer.step(closure)
        print(f"epoch {epoch}: {value.item():.5f}", flush=True)


if __name__ == "__main__":
    main()
