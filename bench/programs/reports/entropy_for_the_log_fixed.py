"""The same with the entropy computed without gradients, a few rows at a time."""
import torch
from torch import nn
from torch.nn import functional as F

VOCABULARY, WIDTH, LENGTH, BATCH = 151_936, 512, 1024, 2


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 8, 4 * WIDTH, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, ids):
        return self.head(self.layers(self.tokens(ids)))


def entropy_of(logits):
    log_p = F.log_softmax(logits, dim=-1)
    return -(log_p.exp() * log_p).sum(-1)


model = Model().bfloat16().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for step in range(1000):
    ids = torch.randint(VOCABULARY, (BATCH, LENGTH)).cuda()
    logits = model(ids)
    loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
    with torch.no_grad():
        entropy = torch.stack([entropy_of(rows).mean() for rows in logits.flatten(0, 1).split(128)]).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(step, loss.item(), entropy.item())
