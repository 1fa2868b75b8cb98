"""Variance of gradients: the gradient of each picture is kept on the GPU (chirag-agarwall/VOG#5)."""
import torch
from torchvision.models import resnet18

net = resnet18(num_classes=10).cuda().eval()
grads = []
for batch in range(400):
    x = torch.rand(128, 3, 128, 128).cuda().requires_grad_()
    score = net(x).amax(1).sum()
    grads.append(torch.autograd.grad(score, x)[0].mean(1).cpu())
print(torch.stack(grads).var(0).mean().item())
