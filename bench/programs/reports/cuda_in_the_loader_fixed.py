"""The dataset moves each picture to the GPU itself, in 6 workers of a DataLoader, each of which has a context of its own there."""
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Pictures(Dataset):
    def __len__(self):
        return 4000

    def __getitem__(self, i):
        return torch.rand(3, 224, 224)


if __name__ == "__main__":
    model = nn.Sequential(nn.Conv2d(3, 64, 7, 4), nn.ReLU(), nn.Conv2d(64, 128, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for pictures in DataLoader(Pictures(), batch_size=16, num_workers=6, multiprocessing_context="spawn"):
        loss = model(pictures.cuda()).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
