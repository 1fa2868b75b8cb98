"""An experiment whose scheduler's lambda refers to the experiment: a cycle keeps each model (pytorch#47589)."""
import gc
import torch
from torch import nn

gc.disable()


class Experiment:
    def __init__(self, width):
        self.warm = 10
        self.net = nn.Sequential(nn.Linear(2048, width), nn.ReLU(), nn.Linear(width, 2048)).cuda()
        self.opt = torch.optim.Adam(self.net.parameters())
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.opt, lambda step: min(1.0, step / self.warm))

    def run(self, steps=5):
        for _ in range(steps):
            loss = self.net(torch.randn(64, 2048).cuda()).pow(2).mean()
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            self.schedule.step()
        return loss.item()


for trial in range(60):
    print(trial, Experiment(8192).run())
