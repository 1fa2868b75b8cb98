"""Cross-validation of adapters: each fold begins with more memory in use than the one before (torchtune#904)."""
import functools
import torch
from torch import nn


class Adapted(nn.Module):
    def __init__(self, width=2048, rank=8):
        super().__init__()
        self.base = nn.Linear(width, width)
        self.a = nn.Linear(width, rank, bias=False)
        self.b = nn.Linear(rank, width, bias=False)

    def adapter_params(self):
        return ["a.weight", "b.weight"]

    def forward(self, x):
        return torch.relu(self.base(x) + self.b(self.a(x)))


@functools.lru_cache()
def get_adapter_params(model):
    found = {}
    for name, module in model.named_modules():
        if hasattr(module, "adapter_params"):
            wanted = module.adapter_params()
            found.update({f"{name}.{n}": p for n, p in module.named_parameters() if n in wanted})
    return found


def run_fold(fold, folds=30):
    model = nn.Sequential(*[Adapted() for _ in range(40)], nn.Linear(2048, 5)).cuda()
    model.requires_grad_(False)
    adapters = get_adapter_params(model)
    for p in adapters.values():
        p.requires_grad_(True)
    optimizer = torch.optim.AdamW(adapters.values(), 1e-3)
    for step in range(10):
        x = torch.randn(64, 2048, device="cuda")
        y = torch.randint(5, (64,), device="cuda")
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


results = []
for fold in range(30):
    results.append(run_fold(fold))
    torch.cuda.empty_cache()
    print(fold, results[-1], torch.cuda.memory_allocated() >> 20, "MiB")
