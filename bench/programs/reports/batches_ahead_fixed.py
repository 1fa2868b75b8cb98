"""The same with room for two batches."""
import queue
import threading

import torch
from torch import nn

BATCHES = 600
ready = queue.Queue(maxsize=2)


def load():
    for _ in range(BATCHES):
        ready.put((torch.zeros(64, 3, 320, 320).cuda(non_blocking=True), torch.zeros(64, dtype=torch.long).cuda()))
    ready.put(None)


threading.Thread(target=load, daemon=True).start()
model = nn.Sequential(nn.Conv2d(3, 64, 7, 4), nn.ReLU(), nn.Conv2d(64, 128, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 100)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
while (batch := ready.get()) is not None:
    x, y = batch
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
