"""expect: fits, evaluation (16 forward passes)
why: a test of a trained network: 16 batches, no optimizer.
"""
import torch
import torchvision

model = torchvision.models.resnet18(num_classes=10).cuda().eval()
right = 0
with torch.no_grad():
    for batch in range(16):
        x = torch.randn(32, 3, 224, 224, device="cuda")
        y = torch.randint(0, 10, (32,), device="cuda")
        right += (model(x).argmax(1) == y).sum().item()
print("accuracy", right / (16 * 32))
