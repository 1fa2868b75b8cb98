"""A perceptual loss: the network that compares is in evaluation mode, and still requires gradients."""
import torch
from torch import nn
from torchvision.models import vgg19

features = vgg19().features.cuda().eval().requires_grad_(False)
net = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 3, 3, padding=1)).cuda()
optimizer = torch.optim.Adam(net.parameters(), 1e-4)
for step in range(200):
    x = torch.randn(2, 3, 96, 96, device="cuda")
    made = net(x)
    loss = (features(made) - features(x)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
