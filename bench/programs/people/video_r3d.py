"""torchvision's R3D-18 on clips from the host; SGD with Nesterov, mixed precision, accuracy by topk."""
import torch
from torch import nn
from torchvision.models.video import r3d_18

torch.manual_seed(0)
model = r3d_18(weights=None, num_classes=101).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, nesterov=True, weight_decay=1e-4)
criterion = nn.CrossEntropyLoss()
clips, correct = torch.rand(12, 3, 16, 112, 112), 0
for step in range(60):
    x = clips[torch.randperm(12)].cuda()
    y = torch.randint(0, 101, (12,)).cuda()
    with torch.autocast("cuda", torch.bfloat16):
        logits = model(x)
        loss = criterion(logits, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    correct += (logits.topk(5, 1).indices == y[:, None]).any(1).sum().item()
print("top 5:", correct / 720)
