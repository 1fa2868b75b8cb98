"""A trainer whose batches and outputs are in cycles of references, so that only the collector frees them; collects garbage every 4 steps."""

import gc

import torch
from torch import nn


class Node:
    """What a step made, knows the step before it and is known by its own parts."""

    def __init__(self, trainer, inputs, outputs):
        self.trainer, self.inputs, self.outputs = trainer, inputs, outputs
        self.parts = [Part(self, it) for it in outputs.detach().chunk(4)]


class Part:
    def __init__(self, node, tensor):
        self.node, self.tensor = node, tensor


class Trainer:
    def __init__(self):
        torch.manual_seed(0)
        layers = [nn.Sequential(nn.Linear(2048, 8192), nn.GELU(), nn.Linear(8192, 2048), nn.LayerNorm(2048)) for _ in range(6)]
        self.model = nn.Sequential(*layers, nn.Linear(2048, 2048)).cuda()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.last = None

    def step(self, i):
        inputs = torch.randn(6144, 2048, device="cuda")
        outputs = self.model(inputs)
        loss = (outputs - inputs).pow(2).mean()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.last = Node(self, inputs, outputs)
        if i % 4 == 3:
            gc.collect()
            torch.cuda.empty_cache()
        return loss


trainer = Trainer()
for i in range(40):
    loss = trainer.step(i)
    if i % 10 == 0:
        print(i, float(loss.detach()))
