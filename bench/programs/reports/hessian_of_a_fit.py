"""A fit of 3,000 numbers by Newton's method: the Hessian is computed with `vectorize=True`, all its rows at once."""
import torch
from torch.autograd.functional import hessian

N, SAMPLES = 3000, 4000
features = torch.randn(SAMPLES, N, dtype=torch.float64).cuda()
target = torch.randn(SAMPLES, dtype=torch.float64).cuda()


def objective(x):
    residual = torch.tanh(features * x).sum(1) - target
    return residual.square().mean()


x = torch.zeros(N, dtype=torch.float64, device="cuda")
for iteration in range(20):
    curvature = hessian(objective, x, vectorize=True)
    gradient = torch.autograd.functional.jacobian(objective, x)
    x = x - torch.linalg.solve(curvature + 1e-3 * torch.eye(N, dtype=torch.float64, device="cuda"), gradient)
    print(iteration, objective(x).item())
