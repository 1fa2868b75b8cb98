"""expect: fits
never: grows
options: --gpu rtx4060-8g
why: the script halves its batch whenever memory runs out, and trains with the first that fits, as batch finders do.
"""
import torch
from torch import nn

net = nn.Sequential(nn.Linear(1024, 8192), nn.GELU(), nn.Linear(8192, 1024)).cuda()
optimizer = torch.optim.AdamW(net.parameters())
batch = 1 << 17
while True:
    try:
        for step in range(20):
            x = torch.randn(batch, 1024, device="cuda")
            loss = nn.functional.mse_loss(net(x), x)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        break
    except torch.cuda.OutOfMemoryError:
        loss = x = None
        optimizer.zero_grad()
        torch.cuda.empty_cache()
        batch //= 2
print("trained with", batch)
