
import torch, torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset
class Model(nn.Module):
    def __init__(self, i, o): super().__init__(); self.fc = nn.Sequential(nn.Linear(i, 4096), nn.ReLU(), nn.Linear(4096, o))
    def forward(self, x):
        out = self.fc(x); print("\tIn Model: input size", x.size(), "output size", out.size()); return out
model = Model(1000, 10)
if torch.cuda.device_count() > 1:
    print("Let's use", torch.cuda.device_count(), "GPUs!"); model = nn.DataParallel(model)
model.to("cuda")
opt = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
for x, y in DataLoader(TensorDataset(torch.randn(1024, 1000), torch.randint(0, 10, (1024,))), 128):
    opt.zero_grad(); nn.functional.cross_entropy(model(x.cuda()), y.cuda()).backward(); opt.step()
