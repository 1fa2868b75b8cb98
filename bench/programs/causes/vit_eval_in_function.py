"""cause: leak/eval-without-no-grad at line 26
memory: 2GiB
why: validate() switches to eval() and forgets no_grad; it dies in its first batch, which is larger than a training batch.
"""
import torch
from torch import nn


class Vit(nn.Module):
    def __init__(self):
        super().__init__()
        self.cut = nn.Conv2d(3, 384, 16, stride=16)
        self.body = nn.TransformerEncoder(nn.TransformerEncoderLayer(384, 6, 1536, batch_first=True), 6)
        self.head = nn.Linear(384, 10)

    def forward(self, x):
        x = self.cut(x).flatten(2).transpose(1, 2)
        x = self.body(x)
        return self.head(x.mean(1))


def validate(model, batches):
    model.eval()
    right = 0
    for images in batches:
        right += (model(images.cuda()).argmax(1) == 0).sum().item()  # here
    return right


model = Vit().cuda()
optimizer = torch.optim.AdamW(model.parameters())
for step in range(3):
    optimizer.zero_grad()
    model(torch.randn(8, 3, 224, 224, device="cuda")).square().mean().backward()
    optimizer.step()
print(validate(model, [torch.randn(64, 3, 224, 224) for _ in range(4)]))
