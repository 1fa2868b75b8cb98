"""expect: script_failed (no training step)
why: the first batch has the wrong width; the script catches that, says so and ends with 0, as if nothing were wrong.
"""
import torch
from torch import nn

model = nn.Linear(1024, 10).cuda()
optimizer = torch.optim.AdamW(model.parameters())
try:
    for step in range(100):
        loss = model(torch.randn(64, 1000, device="cuda")).logsumexp(1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
except Exception as error:
    print("training failed:", error)
print("finished")
