"""A mixture of experts whose tokens are sent by a product with a table of tokens x experts x places, as in GShard."""
import torch
from torch import nn

WIDTH, EXPERTS = 512, 64


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(WIDTH, EXPERTS, bias=False)
        self.first = nn.Parameter(torch.randn(EXPERTS, WIDTH, 4 * WIDTH) * 0.02)
        self.second = nn.Parameter(torch.randn(EXPERTS, 4 * WIDTH, WIDTH) * 0.02)

    def forward(self, x):
        tokens = x.flatten(0, 1)
        places = 2 * len(tokens) // EXPERTS
        shares = self.gate(tokens).softmax(-1)
        share, expert = shares.max(-1)
        order = expert.argsort()
        sent = tokens[order][: places * EXPERTS // 2].view(EXPERTS, places // 2, WIDTH)
        result = torch.bmm(torch.bmm(sent, self.first).relu(), self.second).flatten(0, 1)
        return (torch.zeros_like(tokens).index_copy(0, order[: len(result)], result) * share[:, None]).view_as(x)


model = nn.Sequential(nn.Linear(WIDTH, WIDTH), Experts(), nn.Linear(WIDTH, WIDTH)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for step in range(500):
    loss = model(torch.randn(16, 1536, WIDTH, device="cuda")).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
