"""Each layer's weight is tuned by L-BFGS in turn, that fits; the evaluation after it does not (heretic#426)."""
import torch
from torch import nn

WIDTH = 4096


def goal_of(layer, good, bad):
    with torch.no_grad():
        return layer(good), layer(bad).mean(0, keepdim=True)


def tune(layer, good, bad):
    want, avoid = goal_of(layer, good, bad)
    layer.weight.requires_grad_(True)
    optimizer = torch.optim.LBFGS([layer.weight], lr=0.5, max_iter=4, history_size=4)

    def closure():
        optimizer.zero_grad()
        kept = nn.functional.mse_loss(layer(good), want)
        away = nn.functional.cosine_similarity(layer(bad), avoid).pow(2).mean()
        loss = kept + away
        loss.backward()
        return loss

    loss = optimizer.step(closure).item()
    layer.weight.requires_grad_(False)
    return loss


@torch.no_grad()
def evaluate(layers, rows=49152):
    x = torch.randn(rows, WIDTH, device="cuda")
    for layer in layers:
        x = x + nn.functional.gelu(layer(x))
    return x.mean().item()


layers = nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(48)]).cuda().requires_grad_(False)
for trial in range(5):
    good, bad = torch.randn(2, 256, WIDTH, device="cuda")
    losses = [tune(layer, good, bad) for layer in layers]
    print(trial, losses[-1], "score", evaluate(layers))
