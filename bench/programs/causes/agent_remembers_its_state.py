"""cause: leak/graph-retained at line 24
memory: 1GiB
why: the recurrent state of an agent is carried over episodes with its graph.
"""
import torch
from torch import nn


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.see = nn.Linear(128, 512)
        self.memory = nn.GRUCell(512, 512)
        self.act = nn.Linear(512, 6)


agent = Agent().cuda()
optimizer = torch.optim.RMSprop(agent.parameters())
state = torch.zeros(256, 512, device="cuda")
for episode in range(300):
    total = 0.0
    for _ in range(4):
        seen = torch.tanh(agent.see(torch.randn(256, 128, device="cuda")))
        state = agent.memory(seen, state)  # here
        total = total - agent.act(state).log_softmax(-1).amax(-1).mean()
    optimizer.zero_grad()
    total.backward(retain_graph=True)
    if episode % 200 == 199:
        optimizer.step()
