"""Iterative pruning of a transformer: it trains, then the smallest fifth of all remaining weights is cut, and so on (pytorch#49332)."""
import torch
from torch import nn
from torch.nn.utils import prune

WIDTH, LAYERS, WORDS = 1280, 12, 8000


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 16, 4 * WIDTH, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, ids):
        return self.head(self.body(self.words(ids)))


def to_prune(model):
    return [(module, "weight") for name, module in model.named_modules() if isinstance(module, nn.Linear) and "out_proj" not in name]


def cut(model, amount):
    prune.global_unstructured(to_prune(model), pruning_method=prune.L1Unstructured, amount=amount)


def sparsity(model):
    weights = [module.weight_mask for module, _ in to_prune(model)]
    return 1 - sum(w.sum().item() for w in weights) / sum(w.numel() for w in weights)


def train(model, optimizer, steps):
    for step in range(steps):
        ids = torch.randint(WORDS, (4, 128), device="cuda")
        hidden = ids.clone()
        hidden[:, ::7] = 0
        loss = nn.functional.cross_entropy(model(hidden).flatten(0, 1), ids.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


with torch.device("cuda"):
    model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
print("dense", train(model, optimizer, 30))
for turn in range(8):
    cut(model, amount=0.2)
    print(turn, sparsity(model), train(model, optimizer, 30))
