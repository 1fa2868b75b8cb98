"""MAML with torch.func: five inner steps of gradient descent on every task, tasks under vmap, second-order outer gradients, 5-way 5-shot."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.func import functional_call, grad, vmap

torch.manual_seed(0)
WAY, SHOT, QUERY, TASKS, INNER_STEPS, INNER_LR = 5, 5, 15, 6, 5, 0.01


def conv_block(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o, track_running_stats=False), nn.ReLU(), nn.MaxPool2d(2))


net = nn.Sequential(conv_block(3, 48), conv_block(48, 48), conv_block(48, 48), conv_block(48, 48), nn.Flatten(), nn.Linear(48 * 25, WAY)).cuda()
prototypes = torch.randn(64, 3, 84, 84, device="cuda")


def sample_tasks(n):
    classes = torch.stack([torch.randperm(64)[:WAY] for _ in range(n)]).cuda()

    def pictures(k):
        x = prototypes[classes].repeat_interleave(k, dim=1)
        y = torch.arange(WAY, device="cuda").repeat_interleave(k).expand(n, -1)
        return x + torch.randn_like(x), y

    return pictures(SHOT) + pictures(QUERY)


def inner_loss(params, x, y):
    return F.cross_entropy(functional_call(net, params, (x,)), y)


def loss_for_task(params, x_support, y_support, x_query, y_query):
    fast = params
    for _ in range(INNER_STEPS):
        g = grad(inner_loss)(fast, x_support, y_support)
        fast = {k: fast[k] - INNER_LR * g[k] for k in g}
    logits = functional_call(net, fast, (x_query,))
    return F.cross_entropy(logits, y_query), (logits.argmax(1) == y_query).float().mean()


params = dict(net.named_parameters())
meta_optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for iteration in range(30):
    tasks = sample_tasks(TASKS)
    losses, accuracies = vmap(loss_for_task, in_dims=(None, 0, 0, 0, 0))(params, *tasks)
    meta_optimizer.zero_grad()
    losses.mean().backward()
    meta_optimizer.step()
    if iteration % 5 == 0:
        print(f"{iteration:3d} | query loss {losses.mean().item():.3f} | query accuracy {accuracies.mean().item():.2%}")
