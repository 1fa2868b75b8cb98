"""Grad-CAM of a whole validation set: one object, whose hooks append what they see."""
import torch
import torchvision
from torch.utils.data import DataLoader, Dataset


class Pictures(Dataset):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return torch.zeros(3, 320, 320), i


class ActivationsAndGradients:
    def __init__(self, model, layers):
        self.model = model
        self.gradients = []
        self.activations = []
        self.handles = [layer.register_forward_hook(self.save) for layer in layers]

    def save(self, module, given, output):
        self.activations.append(output.detach())
        output.register_hook(lambda grad: self.gradients.append(grad.detach()))

    def __call__(self, x):
        return self.model(x)


class CAM:
    def __init__(self, model, layers):
        self.model = model.eval()
        self.seen = ActivationsAndGradients(self.model, layers)
        self.layers = len(layers)

    def __call__(self, x, category=None):
        scores = self.seen(x)
        category = scores.argmax(-1) if category is None else category
        self.model.zero_grad()
        scores.gather(1, category[:, None]).sum().backward()
        maps = []
        activations = self.seen.activations[-self.layers :]
        gradients = self.seen.gradients[-self.layers :]
        for activation, gradient in zip(activations, reversed(gradients)):
            weights = gradient.mean((2, 3), keepdim=True)
            cam = (weights * activation).sum(1, keepdim=True).relu()
            maps.append(torch.nn.functional.interpolate(cam, x.shape[-2:], mode="bilinear"))
        return torch.cat(maps, 1).mean(1).cpu()


def main():
    model = torchvision.models.resnet50().cuda()
    cam = CAM(model, [model.layer3, model.layer4])
    total = 0.0
    for pictures, names in DataLoader(Pictures(5000), batch_size=8):
        total += cam(pictures.cuda()).mean().item()
    print(total)


if __name__ == "__main__":
    main()
