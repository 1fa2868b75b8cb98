"""PyTorch's own transformer layers, with dropout and a mask of lengths."""

import torch
from torch import nn

from planted import STEPS, ended, size

class Tags(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(256, 8, 1024, dropout=0.1, batch_first=True)
        self.tokens, self.layers, self.head = nn.Embedding(5000, 256), nn.TransformerEncoder(layer, 4, enable_nested_tensor=False), nn.Linear(256, 20)

    def forward(self, ids, is_padding):
        return self.head(self.layers(self.tokens(ids), src_key_padding_mask=is_padding))


model = Tags().cuda()
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
for step in range(STEPS):
    t = size(step, 128, 512)
    ids, tags = torch.randint(1, 5000, (32, t), device="cuda"), torch.randint(0, 20, (32, t), device="cuda")
    out = model(ids, ids.eq(0))
    loss = nn.CrossEntropyLoss()(out.flatten(0, 1), tags.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    ended(step, loss, model)
