"""Influence of training pictures: the inverse Hessian times a vector, by recursion (LiSSA)."""
import argparse
import random

import torch
from torch import nn
from torch.autograd import grad
from torch.utils.data import DataLoader, Dataset


class Textures(Dataset):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return torch.randn(3, 96, 96), i % 10


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(),
            nn.AvgPool2d(2), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(),
            nn.AvgPool2d(2), nn.Conv2d(64, 128, 3, padding=1), nn.ReLU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        )
        self.head = nn.Linear(128, 10)

    def forward(self, x):
        return self.head(self.body(x))


def hvp(loss, params, v):
    """The Hessian of the loss times v."""
    first = grad(loss, params, create_graph=True)
    product = sum((g * w).sum() for g, w in zip(first, v))
    return [it.detach() for it in grad(product, params)]


def s_test(model, picture, label, loader, device, damp=0.01, scale=25.0, depth=5000):
    params = [p for p in model.parameters() if p.requires_grad]
    criterion = nn.CrossEntropyLoss()
    v = grad(criterion(model(picture), label), params)
    h = [it.clone() for it in v]
    batches = iter(loader)
    for step in range(depth):
        try:
            x, t = next(batches)
        except StopIteration:
            batches = iter(loader)
            x, t = next(batches)
        loss = criterion(model(x.to(device)), t.to(device))
        hv = hvp(loss, params, h)
        h = [_v + (1 - damp) * _h - _hv / scale for _v, _h, _hv in zip(v, h, hv)]
        if step % 500 == 0:
            print("recursion", step, flush=True)
    return h


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--depth", type=int, default=5000)
    parser.add_argument("--repeats", type=int, default=2)
    args = parser.parse_args()
    random.seed(0)
    device = torch.device("cuda")
    model = Net().to(device).eval()
    loader = DataLoader(Textures(5000), batch_size=16, shuffle=True)
    picture = torch.randn(1, 3, 96, 96, device=device)
    label = torch.tensor([3], device=device)
    estimates = [s_test(model, picture, label, loader, device, depth=args.depth) for _ in range(args.repeats)]
    mean = [torch.stack(parts).mean(0) for parts in zip(*estimates)]
    print("norm", sum(it.norm().item() for it in mean))
