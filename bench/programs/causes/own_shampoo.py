"""cause: size/model-states at line 68
also right: line 29
also right: line 30
also right: line 37
memory: 2GiB
why: an optimizer of one's own keeps two square matrices for each side of a weight: of a vocabulary of 7,000 words these are 187 MiB each.
"""
import torch
from torch import nn


class Shampoo(torch.optim.Optimizer):
    def __init__(self, params, lr=0.1, epsilon=1e-4, every=4):
        super().__init__(params, {"lr": lr, "epsilon": epsilon, "every": every})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                gradient = p.grad
                state = self.state[p]
                if not state:
                    state["step"] = 0
                    if gradient.dim() == 2:
                        for side, n in enumerate(gradient.shape):
                            # The statistics, and their inverse root.
                            state["statistics", side] = torch.zeros(n, n, device=p.device)
                            state["root", side] = torch.eye(n, device=p.device)
                state["step"] += 1
                if gradient.dim() == 2:
                    for side in range(2):
                        g = gradient if side == 0 else gradient.t()
                        state["statistics", side].addmm_(g, g.t())
                        if state["step"] % group["every"] == 1:
                            state["root", side] = self.root(state["statistics", side], group["epsilon"])
                    gradient = state["root", 0] @ gradient @ state["root", 1]
                p.add_(gradient, alpha=-group["lr"])

    def root(self, a, epsilon):
        """A few steps of Newton's."""
        x = a / (a.diagonal().sum() + epsilon)
        for _ in range(2):
            x = 1.5 * x - 0.5 * x @ x
        return x


class Translator(nn.Module):
    def __init__(self, words=7000, width=256):
        super().__init__()
        self.source, self.target = nn.Embedding(words, width), nn.Embedding(words, width)
        self.rnn = nn.GRU(width, width, batch_first=True)
        self.out = nn.Linear(width, words)

    def forward(self, text, answer):
        _, state = self.rnn(self.source(text))
        return self.out(self.rnn(self.target(answer), state)[0])


model = Translator().cuda()
optimizer = Shampoo(model.parameters())
for step in range(10):
    text, answer = torch.randint(0, 7000, (2, 8, 24), device="cuda")
    loss = nn.functional.cross_entropy(model(text, answer[:, :-1]).flatten(0, 1), answer[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # here
