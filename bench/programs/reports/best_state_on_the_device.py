"""After the training the best checkpoint is loaded on the device, beside all that the training still has there (huggingface/transformers#20920)."""
import os
import tempfile

import torch
from torch import nn

path = os.path.join(tempfile.mkdtemp(), "best.pt")


class LM(nn.Module):
    def __init__(self, vocab=32000, width=1536, layers=16):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.blocks = nn.ModuleList(nn.TransformerEncoderLayer(width, 12, 4 * width, 0.0, batch_first=True, norm_first=True) for _ in range(layers))
        self.head = nn.Linear(width, vocab, bias=False)

    def forward(self, ids):
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def loss_of(model, ids):
    return nn.functional.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())


model = LM().cuda()
optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)
best = float("inf")
for epoch in range(3):
    model.train()
    for step in range(40):
        loss = loss_of(model, torch.randint(0, 32000, (1, 129)).cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        score = sum(loss_of(model, torch.randint(0, 32000, (1, 129)).cuda()).item() for _ in range(10))
    if score < best or epoch == 0:
        best = score
        torch.save(model.state_dict(), path)
state = torch.load(path, map_location="cuda")
model.load_state_dict(state)
print(best, loss_of(model, torch.randint(0, 32000, (1, 129)).cuda()).item())
