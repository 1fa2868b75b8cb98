"""cause: size/activations
also right: inputs/dynamic-shapes
also right: size/one-allocation
memory: 4GiB
why: test-time augmentation gives 48 views of each image to the model at once, under no_grad.
"""
import torch
import torchvision

model = torchvision.models.resnet18(num_classes=100).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for step in range(4):
    x, y = torch.randn(32, 3, 160, 160, device="cuda"), torch.randint(0, 100, (32,), device="cuda")
    loss = torch.nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
model.eval()
right = 0
with torch.no_grad():
    for step in range(4):
        x, y = torch.randn(32, 3, 160, 160, device="cuda"), torch.randint(0, 100, (32,), device="cuda")
        views = torch.stack([torch.roll(x, shift, 2) for shift in range(48)], 1)
        scores = model(views.flatten(0, 1)).view(32, 48, -1).mean(1)
        right += (scores.argmax(1) == y).sum().item()
