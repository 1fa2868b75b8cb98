"""expect: out_of_memory in evaluation at line 21
options: --gpu rtx4060-8g
why: each of 8 validation batches keeps 40 x 8192 x 1024 x 4 = 1.25 GiB with its graph: the sixth does not fit into 7.6 GiB.
"""
import torch
from torch import nn

model = nn.Sequential(*[nn.Sequential(nn.Linear(1024, 1024), nn.ReLU()) for _ in range(40)]).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(3):
    model.train()
    for step in range(16):
        x = torch.randn(4096, 1024, device="cuda")
        loss = nn.functional.mse_loss(model(x), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    results = []
    for step in range(8):
        results.append(model(torch.randn(8192, 1024, device="cuda")))  # dies
    print(epoch, torch.cat(results).mean().item())
