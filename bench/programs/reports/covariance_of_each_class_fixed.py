"""Augmentation of features by the covariance of each class, for 365 classes of 2,048 features (MetaSAug#4)."""
import torch
import torchvision
from torch import nn

CLASSES, FEATURES = 365, 2048


class Covariance:
    """Running mean and covariance of the features of each class."""

    def __init__(self, classes, features):
        self.count = torch.zeros(classes, device="cuda")
        self.mean = torch.zeros(classes, features, device="cuda")
        self.covariance = torch.zeros(classes, features, device="cuda")

    @torch.no_grad()
    def update(self, features, labels):
        one_hot = nn.functional.one_hot(labels, len(self.count)).float()
        number = one_hot.sum(0)
        here = one_hot.t() @ features / number.clamp(min=1)[:, None]
        apart = (features[:, None] - here[None]) * one_hot[:, :, None]
        spread = apart.square().sum(0) / number.clamp(min=1)[:, None]
        weight = (number / (number + self.count).clamp(min=1))[:, None]
        between = (self.mean - here).square()
        self.covariance = self.covariance * (1 - weight) + spread * weight + weight * (1 - weight) * between
        self.mean = self.mean * (1 - weight) + here * weight
        self.count += number


def augmented(scores, labels, fc, covariance, ratio):
    w = fc.weight
    difference = w[None] - w[labels][:, None]
    sigma = torch.einsum("nci,ni,nci->nc", difference, covariance.covariance[labels], difference)
    return scores + 0.5 * ratio * sigma


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torchvision.models.resnet50()
        self.body.fc = nn.Identity()
        self.fc = nn.Linear(FEATURES, CLASSES)

    def forward(self, x):
        features = self.body(x)
        return features, self.fc(features)


model = Classifier().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
covariance = Covariance(CLASSES, FEATURES)
for step in range(10000):
    pictures = torch.randn(32, 3, 160, 160, device="cuda")
    labels = torch.randint(CLASSES, (32,), device="cuda")
    features, scores = model(pictures)
    covariance.update(features.detach(), labels)
    loss = nn.functional.cross_entropy(augmented(scores, labels, model.fc, covariance, 0.5 * step / 10000), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 100 == 0:
        print(step, loss.item())
