"""expect: fits
environment: CUDA_VISIBLE_DEVICES=GPU-8f6a2c3e-1b7d-4c55-9e0a-2f4b6d8c0e12 SLURM_JOB_GPUS=3 SLURM_JOB_ID=1234
says: CUDA_VISIBLE_DEVICES
why: a cluster sets the UUID of the GPU that a job got. The phantom stands for it.
"""
import torch
from torch import nn

assert torch.cuda.is_available() and torch.cuda.device_count() == 1
model = nn.Linear(1024, 1024).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for step in range(30):
    loss = model(torch.randn(4096, 1024, device="cuda")).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
