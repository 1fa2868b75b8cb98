"""cause: size/one-allocation at line 27
memory: 7GiB
why: a careful evaluation converts all scores to 64 bits.
"""
import torch
from torch import nn


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(64000, 320)
        self.body = nn.GRU(320, 320, batch_first=True)

    def forward(self, words):
        return self.body(self.table(words))[0] @ self.table.weight.t()


model = Words().cuda()


@torch.no_grad()
def perplexity(batches):
    total, count = 0.0, 0
    for words in batches:
        scores = model(words[:, :-1])
        logs = torch.log_softmax(scores.double(), dim=-1)  # here
        total -= logs.gather(-1, words[:, 1:, None]).sum().item()
        count += words[:, 1:].numel()
    return total / count


optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for step in range(3):
        words = torch.randint(0, 64000, (4, 257), device="cuda")
        loss = nn.functional.cross_entropy(model(words[:, :-1]).flatten(0, 1), words[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    print(perplexity(torch.randint(0, 64000, (16, 513), device="cuda") for _ in range(3)))
    model.train()
