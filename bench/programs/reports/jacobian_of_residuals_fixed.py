"""A Jacobian of 2500 x 768 has 8 MB; jacrev asks for many GB (functorch#1058)."""
import torch
from torch.func import jacrev

POINTS, CENTERS = 2500, 256
points = torch.rand(POINTS, device="cuda")
measured = torch.sin(6 * points)


def unpack(inputs):
    return inputs[:CENTERS], inputs[CENTERS:2 * CENTERS], inputs[2 * CENTERS:]


def residual(inputs):
    weights, centers, widths = unpack(inputs)
    kernel = torch.exp(-((points[:, None] - centers) / (0.05 + widths.abs())) ** 2)
    return kernel @ weights - measured


inputs = torch.cat([torch.randn(CENTERS), torch.rand(CENTERS), 0.1 * torch.ones(CENTERS)]).cuda()
damping = 1.0
for step in range(100):
    jacobian = jacrev(residual, chunk_size=50)(inputs)
    r = residual(inputs)
    normal = jacobian.t() @ jacobian + damping * torch.eye(len(inputs), device="cuda")
    change = torch.linalg.solve(normal, jacobian.t() @ r)
    inputs = inputs - change
    damping *= 0.9
    print(step, r.pow(2).sum().item())
