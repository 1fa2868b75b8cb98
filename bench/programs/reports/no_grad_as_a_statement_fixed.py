"""The same in a `with`."""
import torch
from torch.utils.data import DataLoader, TensorDataset
from torchvision.models import resnet50

data = TensorDataset(torch.randn(400, 3, 224, 224))
model = resnet50().cuda()
model.eval()
features = []
with torch.no_grad():
    for (x,) in DataLoader(data, batch_size=8):
        features.append(model(x.cuda()))
print(torch.cat(features).mean().item())
