"""Influence of training pictures: the gradient of each is projected to 512 numbers by a random matrix (bergson#289)."""
import torch
import torchvision
from torch import nn
from torch.func import functional_call, grad, vmap

DIMENSIONS = 512
model = torchvision.models.resnet18(num_classes=10, norm_layer=lambda c: nn.GroupNorm(8, c)).cuda().eval()
weights = {name: w.detach() for name, w in model.named_parameters()}
size = sum(w.numel() for w in weights.values())


class Projector:
    def __init__(self, size, dimensions, seed=0):
        self.dimensions, self.seed = dimensions, seed

    def __call__(self, gradients):
        generator = torch.Generator("cuda").manual_seed(self.seed)
        total = 0
        for g in gradients.values():
            flat = g.flatten(1)
            for part in flat.split(500_000, dim=1):
                total = total + part @ torch.randn(part.shape[1], self.dimensions, device="cuda", generator=generator)
        return total / self.dimensions**0.5


def loss_of_one(weights, picture, label):
    scores = functional_call(model, weights, (picture[None],))
    return nn.functional.cross_entropy(scores, label[None])


gradients_of = vmap(grad(loss_of_one), in_dims=(None, 0, 0))


def pictures(n, size=8):
    for _ in range(n):
        yield torch.zeros(size, 3, 64, 64), torch.zeros(size, dtype=torch.long)


projector = Projector(size, DIMENSIONS)
features = []
for batch, labels in pictures(40):
    gradients = gradients_of(weights, batch.cuda(), labels.cuda())
    features.append(projector(gradients).cpu())
features = torch.cat(features)
kernel = features.T @ features
print(features.shape, torch.linalg.matrix_rank(kernel).item())
