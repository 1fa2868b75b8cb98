"""Learning to learn: the optimizer's LSTM is unrolled over 100 steps of the learner before one backward pass."""
import torch
import torch.nn.functional as F
from torch import nn


class LearnedOptimizer(nn.Module):
    def __init__(self, hidden=20):
        super().__init__()
        self.cell1, self.cell2 = nn.LSTMCell(1, hidden), nn.LSTMCell(hidden, hidden)
        self.out = nn.Linear(hidden, 1)

    def start(self, n, device):
        return [tuple(torch.zeros(n, 20, device=device) for _ in range(2)) for _ in range(2)]

    def forward(self, gradient, state):
        first = self.cell1(gradient, state[0])
        second = self.cell2(first[0], state[1])
        return self.out(second[0]), [first, second]


def learner_loss(theta, x, y):
    w1, w2 = theta[: 784 * 32].view(32, 784), theta[784 * 32 : 784 * 32 + 320].view(10, 32)
    return F.cross_entropy(F.linear(torch.sigmoid(F.linear(x, w1)), w2), y)


device = "cuda"
learned = LearnedOptimizer().to(device)
meta = torch.optim.Adam(learned.parameters(), lr=1e-3)
n = 784 * 32 + 320
UNROLL = 100
for task in range(200):
    theta = torch.randn(n, device=device) * 0.01
    theta.requires_grad_()
    state = learned.start(n, device)
    total = 0
    for step in range(1, UNROLL + 1):
        x, y = torch.rand(128, 784, device=device), torch.randint(0, 10, (128,), device=device)
        loss = learner_loss(theta, x, y)
        total = total + loss
        gradient, = torch.autograd.grad(loss, theta, retain_graph=True)
        update, state = learned(gradient.detach()[:, None], state)
        theta = theta + 0.1 * update.squeeze(1)
    meta.zero_grad()
    total.backward()
    meta.step()
