"""cause: growth/per-step at line 24
also right: leak/earlier-models
also right: size/model-states
also right: line 25
also right: line 37
memory: 3GiB
why: each task of a continual learner gets a new head; the old heads stay in the optimizer's groups, with their moments.
"""
import torch
from torch import nn


class Learner:
    def __init__(self):
        self.body = nn.Sequential(nn.Linear(784, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU()).cuda()
        self.head = None
        self.optimizer = torch.optim.Adam(self.body.parameters(), lr=1e-3)

    def scores(self, images):
        return self.head(self.body(images))

    def begin(self, classes):
        # The head before this one is out of use, but its group is not taken out.
        self.head = nn.Linear(2048, classes).cuda()  # here
        self.optimizer.add_param_group({"params": self.head.parameters(), "lr": 1e-3})


learner = Learner()
images = torch.randn(2048, 784, device="cuda")
for task in range(30):
    learner.begin(5000)
    for step in range(8):
        rows = torch.randint(0, 2048, (128,), device="cuda")
        loss = nn.functional.cross_entropy(learner.scores(images[rows]), torch.randint(0, 5000, (128,), device="cuda"))
        learner.optimizer.zero_grad()
        loss.backward()
        learner.optimizer.step()
