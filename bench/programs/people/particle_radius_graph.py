"""A network over particles: edges are the pairs that are nearer than a radius, found anew in each step from the positions."""
import torch
import torch.nn as nn

SCENES, PARTICLES, HIDDEN, ROUNDS, RADIUS = 8, 1500, 128, 4, 0.09


def edges(positions):
    near = torch.cdist(positions, positions) < RADIUS
    near &= ~torch.eye(PARTICLES, dtype=torch.bool, device=positions.device)
    scene, a, b = near.nonzero(as_tuple=True)
    return scene * PARTICLES + a, scene * PARTICLES + b


def mlp(i, o):
    return nn.Sequential(nn.Linear(i, HIDDEN), nn.SiLU(), nn.Linear(HIDDEN, o))


class Simulator(nn.Module):
    def __init__(self):
        super().__init__()
        self.node, self.edge = mlp(6, HIDDEN), mlp(4, HIDDEN)
        self.messages = nn.ModuleList([mlp(3 * HIDDEN, HIDDEN) for _ in range(ROUNDS)])
        self.updates = nn.ModuleList([mlp(2 * HIDDEN, HIDDEN) for _ in range(ROUNDS)])
        self.out = mlp(HIDDEN, 3)

    def forward(self, positions, velocities):
        source, target = edges(positions)
        flat = positions.reshape(-1, 3)
        offset = flat[source] - flat[target]
        e = self.edge(torch.cat([offset, offset.norm(dim=-1, keepdim=True)], -1))
        x = self.node(torch.cat([flat, velocities.reshape(-1, 3)], -1))
        for message, update in zip(self.messages, self.updates):
            e = e + message(torch.cat([e, x[source], x[target]], -1))
            x = x + update(torch.cat([x, torch.zeros_like(x).index_add_(0, target, e)], -1))
        return self.out(x).view(SCENES, PARTICLES, 3)


torch.manual_seed(1)
model = Simulator().cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
positions = torch.rand(SCENES, PARTICLES, 3, device="cuda")
velocities = torch.randn_like(positions) * 0.01
for step in range(10):
    noise = torch.randn_like(positions) * 3e-4
    predicted = model(positions + noise, velocities)
    loss = (predicted - torch.randn_like(predicted) * 0.1).square().mean()
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    positions = (positions + velocities) % 1.0
    if step % 5 == 4:
        print(step, loss.item())
