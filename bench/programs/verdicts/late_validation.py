"""expect: out_of_memory in evaluation at line 22
options: --gpu rtx4060-8g
why: after 400 steps comes a validation, under no_grad but with 64 times the batch: 131072 x 16384 x 4 = 8 GiB for the hidden
    layer, on a card of 7.6 GiB. A training step needs 128 MiB for it.
"""
import torch
from torch import nn

model = nn.Sequential(nn.Linear(1024, 16384), nn.ReLU(), nn.Linear(16384, 1024)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(3):
    model.train()
    for step in range(400):
        x = torch.randn(2048, 1024, device="cuda")
        loss = nn.functional.mse_loss(model(x), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        x = torch.randn(131072, 1024, device="cuda")
        print("validation", nn.functional.mse_loss(model(x), x).item())  # dies
