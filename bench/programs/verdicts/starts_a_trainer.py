"""expect: fits
never: grows
peak: allocated at least 200 MiB
within: 60 s
why: a sweep starts its training as a program of its own and waits for it; the sweep itself never uses the GPU.
"""
import subprocess
import sys

TRAINING = """
import torch
net = torch.nn.Linear(4096, 4096).cuda()
optimizer = torch.optim.AdamW(net.parameters())
for step in range(1000):
    loss = net(torch.randn(256, 4096, device="cuda")).square().mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
"""
print(subprocess.run([sys.executable, "-c", TRAINING], check=False).returncode)
