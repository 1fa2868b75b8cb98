"""The same; the reference model gets one sequence at a time."""
import torch
from torch import nn

VOCABULARY, WIDTH = 151_936, 1024


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 16, 4 * WIDTH, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 8, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def states(self, ids):
        return self.layers(self.tokens(ids))


def log_probabilities(model, ids):
    scores = model.head(model.states(ids))[:, :-1].float()
    return scores.log_softmax(-1).gather(-1, ids[:, 1:, None]).squeeze(-1)


policy, reference = Model().bfloat16().cuda(), Model().bfloat16().cuda().eval().requires_grad_(False)
optimizer = torch.optim.SGD(policy.parameters(), lr=1e-6)
for step in range(200):
    ids = torch.randint(VOCABULARY, (8, 2048)).cuda()
    with torch.no_grad():
        before = torch.cat([log_probabilities(reference, part) for part in ids.split(1)])
    for part, known in zip(ids.split(1), before.split(1)):
        ratio = (log_probabilities(policy, part[:, :512]) - known[:, :511]).exp()
        ratio.mean().div(8).backward()
    optimizer.step()
    optimizer.zero_grad()
