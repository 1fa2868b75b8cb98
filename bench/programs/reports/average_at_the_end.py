"""Averages the weights over the last epochs, and gives the average its own statistics of BatchNorm after the training: by forward passes in training mode."""
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import DataLoader, TensorDataset
from torchvision.models import resnet50

data = TensorDataset(torch.randn(640, 3, 224, 224), torch.randint(1000, (640,)))
loader = DataLoader(data, batch_size=32, shuffle=True)
model = resnet50().cuda()
average = AveragedModel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(20):
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x.cuda()), y.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if 15 <= epoch:
        average.update_parameters(model)


def refresh_norms(network):
    network.train()
    outputs = []
    for x, _ in loader:
        outputs.append(network(x.cuda()))
    return torch.cat(outputs).mean()


print(refresh_norms(average).item())
