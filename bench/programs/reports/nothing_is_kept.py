"""Nothing is wrong: a progress bar has the last loss, the best weights are an alias, the average is of numbers."""
import torch
import torch.nn.functional as F
import torchvision
from torch import nn


class Early:
    def __init__(self, patience=3):
        self.best, self.state, self.bad, self.patience = float("inf"), None, 0, patience

    def __call__(self, value, model):
        if value < self.best:
            self.best, self.bad, self.state = value, 0, {k: v.cpu().clone() for k, v in model.state_dict().items()}
        else:
            self.bad += 1
        return self.bad >= self.patience


class Bar:
    def set_postfix(self, **values):
        self.values = values


def evaluate(model, batches=4):
    model.eval()
    with torch.no_grad():
        losses = [F.cross_entropy(model(torch.rand(64, 3, 64, 64).cuda()), torch.randint(0, 10, (64,)).cuda()) for _ in range(batches)]
    model.train()
    return torch.stack(losses).mean().item()


model = torchvision.models.mobilenet_v2(num_classes=10).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
early, bar, smooth = Early(patience=1000), Bar(), None
for epoch in range(30):
    for i in range(25):
        x, y = torch.rand(64, 3, 64, 64).cuda(), torch.randint(0, 10, (64,)).cuda()
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        smooth = loss.item() if smooth is None else 0.98 * smooth + 0.02 * loss.item()
        bar.set_postfix(loss=loss, smooth=smooth)
    if early(evaluate(model), model):
        break
