"""DenseNet-121 with the paper's batches does not train where ResNet-152 does (torchvision#691, pytorch/benchmark#598)."""
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.models import densenet121


class Pictures(Dataset):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return torch.randn(3, 224, 224), i % 1000


def train(model, epochs=90, batch_size=64):
    loader = DataLoader(Pictures(640), batch_size, shuffle=True, drop_last=True)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=1e-4)
    model.train()
    for epoch in range(epochs):
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x.cuda()), y.cuda())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(epoch, loss.item())


if __name__ == "__main__":
    train(densenet121(weights=None).cuda())
