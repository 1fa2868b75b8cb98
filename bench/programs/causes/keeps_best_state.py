"""cause: copies/double-buffer at line 43
also right: line 42
memory: 2GiB
why: the best weights so far are cloned on the device, model and optimizer; the second time the old copy is still there while the new one is made.
"""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def network():
    return nn.Sequential(
        nn.Linear(512, 6144), nn.LayerNorm(6144), nn.GELU(), nn.Linear(6144, 6144), nn.LayerNorm(6144), nn.GELU(), nn.Linear(6144, 100)
    )


def evaluate(model, loader):
    model.eval()
    losses = []
    with torch.no_grad():
        for x, y in loader:
            losses.append(nn.functional.cross_entropy(model(x.cuda()), y.cuda()).item())
    model.train()
    return sum(losses) / len(losses)


model = network().cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
train = DataLoader(TensorDataset(torch.randn(1024, 512), torch.randint(0, 100, (1024,))), batch_size=128, shuffle=True)
test = DataLoader(TensorDataset(torch.randn(256, 512), torch.randint(0, 100, (256,))), batch_size=128)
best, best_state = None, None
for epoch in range(20):
    for x, y in train:
        loss = nn.functional.cross_entropy(model(x.cuda()), y.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    score = evaluate(model, test)
    if best is None or score < best + 0.5:
        best = score
        best_state = {
            "model": {name: it.clone() for name, it in model.state_dict().items()},
            "optimizer": [{k: v.clone() for k, v in s.items()} for s in optimizer.state.values()],  # here
        }
torch.save(best_state, "best.pt")
