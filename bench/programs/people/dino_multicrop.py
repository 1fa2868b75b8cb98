"""Self-distillation with many crops: two large and six small ones, a teacher that follows, centred targets, a head with weight norm."""
import copy

import torch
import torch.nn.functional as F
from torch import nn
from torchvision.models import VisionTransformer

OUT, BATCH = 16384, 20


class Head(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(width, 1024), nn.GELU(), nn.Linear(1024, 1024), nn.GELU(), nn.Linear(1024, 256))
        self.last = nn.utils.parametrizations.weight_norm(nn.Linear(256, OUT, bias=False))

    def forward(self, x):
        return self.last(F.normalize(self.layers(x), dim=-1))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = VisionTransformer(image_size=224, patch_size=16, num_layers=8, num_heads=6, hidden_dim=384, mlp_dim=1536)
        self.body.heads = nn.Identity()
        self.head = Head(384)

    def forward(self, images):
        return self.head(self.body(F.interpolate(images, 224, mode="bilinear") if images.shape[-1] != 224 else images))


torch.manual_seed(0)
student = Net().cuda()
teacher = copy.deepcopy(student).requires_grad_(False)
optimizer = torch.optim.AdamW(student.parameters(), lr=5e-4, weight_decay=0.04)
center = torch.zeros(OUT, device="cuda")
for step in range(30):
    large = [torch.randn(BATCH, 3, 224, 224, device="cuda") for _ in range(2)]
    small = [torch.randn(BATCH, 3, 96, 96, device="cuda") for _ in range(4)]
    with torch.no_grad():
        targets = [((teacher(it) - center) / 0.04).softmax(-1) for it in large]
    views = [student(it) for it in large + small]
    pairs = [(t, v) for t in range(2) for v in range(len(views)) if v != t]
    loss = sum(-(targets[t] * F.log_softmax(views[v] / 0.1, -1)).sum(-1).mean() for t, v in pairs) / len(pairs)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(student.parameters(), 3.0)
    optimizer.step()
    with torch.no_grad():
        for mine, its in zip(teacher.parameters(), student.parameters()):
            mine.mul_(0.996).add_(its, alpha=0.004)
        center = center * 0.9 + torch.cat(targets).mean(0) * 0.1
    if step % 10 == 0:
        print(step, loss.item())
