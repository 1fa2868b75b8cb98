"""cause: size/one-allocation at line 31
also right: line 20
memory: 3GiB
why: training looks at a few words of each text, validation scores all of them over the whole vocabulary, in float32.
"""
import torch
from torch import nn


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(64000, 256)
        self.layer = nn.TransformerEncoderLayer(256, 4, 512, batch_first=True)
        self.head = nn.Linear(256, 64000, bias=False)

    def forward(self, ids, places=None):
        hidden = self.layer(self.words(ids))
        if places is not None: hidden = hidden[:, places]
        return self.head(hidden)


net = Reader().cuda()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-4)


def validate():
    net.eval()
    with torch.no_grad():
        ids = torch.randint(64000, (32, 512), device="cuda")
        logits = net(ids)  # here
        return logits.argmax(-1).eq(ids).float().mean().item()


for epoch in range(3):
    net.train()
    for step in range(5):
        ids = torch.randint(64000, (16, 128), device="cuda")
        places = torch.arange(8, device="cuda")
        loss = nn.functional.cross_entropy(net(ids, places).flatten(0, 1), ids[:, :8].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, validate())
