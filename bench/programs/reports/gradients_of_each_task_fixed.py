"""Multi-task learning with projected gradients: those of ten tasks are there at once (Pytorch-PCGrad#2)."""
import copy
import random

import torch
from torch import nn

TASKS = 10


class Shared(nn.Module):
    def __init__(self, width=768, layers=12):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        layer = nn.TransformerEncoderLayer(width, 12, 4 * width, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.heads = nn.ModuleList(nn.Linear(width, 20) for _ in range(TASKS))

    def forward(self, x):
        pooled = self.body(self.patches(x).flatten(2).transpose(1, 2)).mean(1)
        return [head(pooled) for head in self.heads]


class PCGrad:
    def __init__(self, optimizer, shared):
        self.optimizer, self.shared = optimizer, list(shared)

    def parameters(self):
        return list(self.shared)

    def backward(self, losses):
        grads, has_grads = [], []
        for loss in losses:
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward(retain_graph=True)
            grad, has_grad = self.retrieve()
            grads.append(grad)
            has_grads.append(has_grad)
        merged = self.project(grads, has_grads)
        at = 0
        for p in self.parameters():
            p.grad = merged[at : at + p.numel()].view_as(p)
            at += p.numel()

    def retrieve(self):
        grad = [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in self.parameters()]
        has_grad = [torch.zeros_like(p) if p.grad is None else torch.ones_like(p) for p in self.parameters()]
        return torch.cat([g.flatten() for g in grad]), torch.cat([g.flatten() for g in has_grad])

    def project(self, grads, has_grads):
        shared = torch.stack(has_grads).prod(0).bool()
        projected = copy.deepcopy(grads)
        for g_i in projected:
            random.shuffle(grads)
            for g_j in grads:
                product = torch.dot(g_i, g_j)
                g_i -= torch.where(product < 0, product / g_j.norm() ** 2, 0) * g_j
        merged = torch.stack(projected).sum(0)
        return torch.where(shared, merged / TASKS, merged)


model = Shared().cuda()
optimizer = PCGrad(torch.optim.AdamW(model.parameters(), lr=1e-4), model.body.layers[-1].parameters())
for step in range(400):
    pictures = torch.randn(8, 3, 224, 224, device="cuda")
    targets = torch.randint(20, (TASKS, 8), device="cuda")
    losses = [nn.functional.cross_entropy(scores, target) for scores, target in zip(model(pictures), targets)]
    optimizer.backward(losses)
    optimizer.optimizer.step()
    if step % 50 == 0:
        print(step, sum(loss.item() for loss in losses))
