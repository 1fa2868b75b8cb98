"""cause: leak/earlier-models at line 20
memory: 3GiB 4GiB
why: the network of each fold stays on the device, for an ensemble at the end.
"""
import torch
from torch import nn
from torchvision.models import wide_resnet50_2


class Fold:
    def __init__(self, number):
        torch.manual_seed(number)
        self.number = number
        self.net = None
        self.score = 0.0

    def make(self):
        net = wide_resnet50_2(num_classes=20)
        net.fc = nn.Sequential(nn.Dropout(0.2), net.fc)
        self.net = net.cuda()  # here
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=1e-4)

    def fit(self, steps):
        self.make()
        for _ in range(steps):
            images = torch.randn(4, 3, 96, 96).cuda()
            loss = nn.functional.cross_entropy(self.net(images), torch.randint(0, 20, (4,)).cuda())
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()


folds = [Fold(number) for number in range(10)]
for fold in folds:
    fold.fit(4)
