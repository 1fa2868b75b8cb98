import os

import torch
import torchvision
from torch.nn.parallel import DistributedDataParallel

torch.distributed.init_process_group("nccl")
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
torch.manual_seed(0)
net = DistributedDataParallel(torchvision.models.resnet50().cuda(), device_ids=[rank])
optimizer = torch.optim.SGD(net.parameters(), 0.01, momentum=0.9)
for step in range(6):
    x, y = torch.randn(16 + 8 * rank, 3, 224, 224, device="cuda"), torch.randint(0, 1000, (16 + 8 * rank,), device="cuda")
    with torch.autocast("cuda", torch.bfloat16):
        loss = torch.nn.functional.cross_entropy(net(x), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
torch.distributed.destroy_process_group()
