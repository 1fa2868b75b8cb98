"""Integrated gradients of one X-ray with 200 steps: all of them go through the network as one batch (captum#538)."""
import torch
import torchvision


def scaled(inputs, baseline, steps):
    alphas = torch.linspace(0, 1, steps, device=inputs.device)
    return torch.cat([baseline + alpha * (inputs - baseline) for alpha in alphas]).requires_grad_()


def gradients(model, inputs, target):
    with torch.autograd.set_grad_enabled(True):
        scores = model(inputs)[:, target]
        return torch.autograd.grad(scores.sum(), inputs)[0]


class IntegratedGradients:
    def __init__(self, model):
        self.model = model

    def attribute(self, inputs, target, n_steps=50, internal_batch_size=20):
        baseline = torch.zeros_like(inputs)
        points = scaled(inputs, baseline, n_steps).detach()
        parts = [gradients(self.model, part.requires_grad_(), target) for part in points.split(internal_batch_size)]
        total = torch.cat(parts).view(n_steps, *inputs.shape).mean(0)
        return (inputs - baseline) * total


def convergence(attributions, model, inputs, target):
    with torch.no_grad():
        difference = model(inputs)[:, target] - model(torch.zeros_like(inputs))[:, target]
    return (attributions.flatten(1).sum(1) - difference).abs().item()


model = torchvision.models.densenet121(num_classes=14).cuda().eval()
explainer = IntegratedGradients(model)
for number in range(20):
    picture = torch.rand(1, 3, 224, 224).cuda()
    with torch.no_grad():
        target = 3
        probability = model(picture).sigmoid()[0, target].item()
    heat = explainer.attribute(picture, target, n_steps=200)
    print(number, probability, convergence(heat, model, picture, target))
