"""Training crops to 512; the labels are made of pictures as they are, with all classes at full size (zhaozhengChen/ReCAM#13)."""
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.models import resnet50


class Pictures(Dataset):
    def __init__(self, sizes):
        self.sizes = sizes

    def __len__(self):
        return len(self.sizes)

    def __getitem__(self, i):
        return torch.randn(3, *self.sizes[i])


class Cam(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(*list(resnet50().children())[:-2])
        self.head = nn.Conv2d(2048, 80, 1, bias=False)

    def forward(self, x):
        return self.head(self.body(x))


net = Cam().cuda()
opt = torch.optim.SGD(net.parameters(), 0.01)
for x in DataLoader(Pictures([(512, 512)] * 320), 4):
    loss = net(x.cuda()).mean((2, 3)).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
net.eval()
with torch.no_grad():
    for x in DataLoader(Pictures([(375, 500)] * 30 + [(3000, 4000)]), 1):
        cams = [nn.functional.interpolate(net(nn.functional.interpolate(x.cuda(), scale_factor=s)), (x.shape[2] // 8, x.shape[3] // 8), mode="bilinear") for s in (0.5, 1.0, 1.5)]
        print(torch.stack(cams).sum(0).argmax(1).float().mean().item())
