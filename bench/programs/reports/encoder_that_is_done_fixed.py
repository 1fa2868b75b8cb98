"""Computes the embeddings of all captions with a text encoder before the training, and then trains without it."""
import torch
from torch import nn


def encoder():
    layer = nn.TransformerEncoderLayer(2048, 16, 8192, batch_first=True, norm_first=True)
    return nn.Sequential(nn.Embedding(32_128, 2048), nn.TransformerEncoder(layer, 20, enable_nested_tensor=False))


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.begin, self.end = nn.Linear(64, 1024), nn.Linear(1024, 64)
        layer = nn.TransformerDecoderLayer(1024, 16, 4096, batch_first=True, norm_first=True)
        self.layers, self.captions = nn.TransformerDecoder(layer, 12), nn.Linear(2048, 1024)

    def forward(self, x, captions):
        return self.end(self.layers(self.begin(x), self.captions(captions)))


text_encoder = encoder().cuda().eval()
with torch.no_grad():
    embeddings = [text_encoder(torch.randint(32_128, (1, 120)).cuda()).cpu() for _ in range(64)]

del text_encoder
model = Denoiser().cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for step in range(2000):
    captions = torch.cat([embeddings[(step + i) % 64] for i in range(4)]).cuda()
    x = torch.randn(4, 1024, 64).cuda()
    loss = (model(x, captions) - x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
