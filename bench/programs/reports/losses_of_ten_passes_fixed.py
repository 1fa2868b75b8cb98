"""Ten pictures are accumulated by adding their losses, one backward at the end (SDL-Skeleton#6)."""
import torch
from torchvision.models import resnet50

net = resnet50(num_classes=2).cuda()
opt = torch.optim.SGD(net.parameters(), 0.01)
iter_size = 10
for step in range(300):
    opt.zero_grad()
    for _ in range(iter_size):
        out = net(torch.randn(4, 3, 384, 384).cuda())
        loss = torch.nn.functional.cross_entropy(out, torch.randint(0, 2, (4,)).cuda()) / iter_size
        loss.backward()
    opt.step()
