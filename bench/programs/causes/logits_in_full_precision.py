"""cause: size/one-allocation at line 27
also right: line 28
also right: line 26
memory: 4GiB
why: the logits of a large vocabulary are made float for the loss.
"""
import torch
from torch import nn


class Small(nn.Module):
    def __init__(self, words=128256, width=384):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.body = nn.TransformerEncoder(nn.TransformerEncoderLayer(width, 6, 4 * width, batch_first=True, norm_first=True), 4)

    def forward(self, ids):
        return self.body(self.words(ids)) @ self.words.weight.t()


torch.manual_seed(1)
model = Small().cuda().bfloat16()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(3):
    ids = torch.randint(0, 128256, (4, 1025), device="cuda")
    logits = model(ids[:, :-1])
    logits = logits.float()  # here
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
