"""cause: leak/eval-without-no-grad at line 20
also right: evaluation/unused-graph
memory: 3GiB
why: validation takes larger batches, since no gradients are needed, and forgets to switch them off.
"""
import torch
from torch import nn
from torchvision.models import densenet121


def train(net, optimizer):
    net.train()
    for _ in range(4):
        loss = nn.functional.cross_entropy(net(torch.randn(8, 3, 160, 160).cuda()), torch.randint(0, 9, (8,)).cuda())
        optimizer.zero_grad(), loss.backward(), optimizer.step()


def validate(net):
    net.eval()
    right = [(net(torch.randn(64, 3, 160, 160).cuda()).argmax(1) == 3).float().mean().item() for _ in range(4)]  # here
    return sum(right) / len(right)


net = densenet121(num_classes=9).cuda()
optimizer = torch.optim.AdamW(net.parameters())
for epoch in range(3):
    train(net, optimizer)
    print(validate(net))
