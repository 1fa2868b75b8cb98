"""Training with noise (differential privacy): hooks compute the gradient of each sample, and virtual steps gather them."""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class PerSample:
    """Fills `p.grad_sample` of linear layers in the backward pass."""

    def __init__(self, model):
        for module in model.modules():
            if isinstance(module, nn.Linear):
                module.register_forward_hook(self.remember)
                module.register_full_backward_hook(self.compute)

    def remember(self, module, inputs, output):
        module.seen = inputs[0].detach()

    def compute(self, module, grad_input, grad_output):
        for p, grad in ((module.weight, torch.einsum("no,ni->noi", grad_output[0], module.seen)), (module.bias, grad_output[0])):
            if not hasattr(p, "grad_sample"):
                p.grad_sample = []
            p.grad_sample.append(grad.detach())
        del module.seen


def clip_and_add_noise(parameters, limit, noise, last):
    for p in parameters:
        sample = p.grad_sample[-1]
        norms = sample.flatten(1).norm(dim=1)
        factor = (limit / (norms + 1e-6)).clamp(max=1.0)
        summed = torch.einsum("n,n...->...", factor, sample)
        if last:
            summed = summed + noise * limit * torch.randn_like(summed)
        p.grad_sample = []
        p.summed = summed if getattr(p, "summed", None) is None else p.summed + summed


def main(epochs=5, batch=64, virtual=4):
    model = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 10)).cuda()
    PerSample(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    data = TensorDataset(torch.zeros(60000, 784), torch.zeros(60000, dtype=torch.long))
    loader = DataLoader(data, batch_size=batch, shuffle=True)
    for epoch in range(epochs):
        for step, (x, y) in enumerate(loader, 1):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x.cuda()), y.cuda())
            loss.backward()
            last = step % virtual == 0
            clip_and_add_noise(model.parameters(), limit=1.0, noise=1.1, last=last)
            if last:
                for p in model.parameters():
                    p.grad, p.summed = p.summed / (batch * virtual), None
                optimizer.step()
        print(f"epoch {epoch}: {loss.item():.4f}")


if __name__ == "__main__":
    main()
