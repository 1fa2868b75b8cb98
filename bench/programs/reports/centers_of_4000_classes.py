"""3000 classes train, 4000 do not, whatever the batch (SoftTriple#11)."""
import torch
from torch import nn
from torchvision.models import resnet18


class SoftTriple(nn.Module):
    def __init__(self, dim, classes, k, la=20.0, gamma=0.1, tau=0.2, margin=0.01):
        super().__init__()
        self.la, self.gamma, self.tau, self.margin = la, 1 / gamma, tau, margin
        self.classes, self.k = classes, k
        self.fc = nn.Parameter(torch.randn(dim, classes * k))
        self.weight = torch.zeros(classes * k, classes * k, dtype=torch.bool, device="cuda")
        block = torch.ones(k, k, dtype=torch.bool, device="cuda").triu(1)
        for i in range(classes):
            self.weight[i * k:(i + 1) * k, i * k:(i + 1) * k] = block

    def forward(self, x, target):
        centers = nn.functional.normalize(self.fc, dim=0)
        each = (x @ centers).reshape(-1, self.classes, self.k)
        score = ((each * self.gamma).softmax(2) * each).sum(2)
        margin = torch.zeros_like(score).scatter_(1, target[:, None], self.margin)
        loss = nn.functional.cross_entropy(self.la * (score - margin), target)
        between = centers.t() @ centers
        spread = torch.sqrt(2 + 1e-5 - 2 * between[self.weight]).sum()
        return loss + self.tau * spread / (self.classes * self.k * (self.k - 1))


net = resnet18(num_classes=64).cuda()
criterion = SoftTriple(64, 4000, 10).cuda()
optimizer = torch.optim.Adam([*net.parameters(), *criterion.parameters()], 1e-4)
for step in range(1000):
    x = torch.randn(16, 3, 224, 224, device="cuda")
    y = torch.randint(4000, (16,), device="cuda")
    loss = criterion(nn.functional.normalize(net(x)), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
