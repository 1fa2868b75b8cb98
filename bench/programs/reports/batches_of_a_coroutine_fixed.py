"""The same; the queue has room for two batches, and the reader waits for it."""
import asyncio

import torch
from torch import nn
from torchvision.models import resnet18


async def read(queue):
    for number in range(5000):
        await asyncio.sleep(0.0005)
        await queue.put((torch.zeros(32, 3, 256, 256).cuda(), torch.zeros(32, dtype=torch.long).cuda()))
    await queue.put(None)


async def train(queue):
    model = resnet18().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    while (batch := await queue.get()) is not None:
        x, y = batch
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        await asyncio.sleep(0.002)


async def main():
    queue = asyncio.Queue(2)
    await asyncio.gather(read(queue), train(queue))


asyncio.run(main())
