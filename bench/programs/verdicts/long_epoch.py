"""expect: out_of_memory in evaluation at line 21, or fits for the training steps
options: --gpu rtx4060-8g
within: 240 s
why: an epoch has 20,000 steps, and the validation after it takes 8 GiB (131072 x 16384 x 4) of 7.6. Whoever does not go that far
    has to say so first, and may promise no more than the training steps.
"""
import torch
from torch import nn

model = nn.Sequential(nn.Linear(512, 16384), nn.ReLU(), nn.Linear(16384, 512)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(2):
    for step in range(20_000):
        x = torch.randn(256, 512, device="cuda")
        loss = nn.functional.mse_loss(model(x), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        x = torch.randn(131072, 512, device="cuda")
        print("validation", nn.functional.mse_loss(model(x), x).item())  # dies
