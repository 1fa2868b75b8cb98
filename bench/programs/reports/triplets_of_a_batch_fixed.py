"""Embeddings of sentences trained with all triplets of a batch, most of which are no triplets (sentence-transformers#4029)."""
import torch
from torch import nn


class Encoder(nn.Module):
    def __init__(self, vocabulary=30000, width=384, layers=4):
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        layer = nn.TransformerEncoderLayer(width, 6, 4 * width, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)

    def forward(self, ids):
        return nn.functional.normalize(self.layers(self.words(ids)).mean(1), dim=-1)


def valid_triplets(labels):
    same = labels[:, None] == labels[None]
    other = ~torch.eye(len(labels), dtype=torch.bool, device=labels.device)
    positive = (same & other)[:, :, None]
    negative = (~same)[:, None, :]
    return positive & negative


def batch_all_triplet_loss(embeddings, labels, margin=5.0):
    distances = torch.cdist(embeddings, embeddings)
    same = labels[:, None] == labels[None]
    anchors = torch.arange(len(labels), device=labels.device)
    partners = anchors ^ 1  # two sentences of each label, side by side
    loss = distances[anchors, partners][:, None] - distances + margin
    loss = ((~same).float() * loss).clamp(min=0)
    active = (loss > 1e-16).sum()
    return loss.sum() / (active + 1e-16)


def batches(n, size, words=24):
    for _ in range(n):
        labels = torch.arange(size // 2).repeat_interleave(2)
        yield torch.zeros(size, words, dtype=torch.long), labels


encoder = Encoder().cuda()
optimizer = torch.optim.AdamW(encoder.parameters(), lr=2e-5)
for step, (ids, labels) in enumerate(batches(3000, 1024)):
    with torch.autocast("cuda", torch.bfloat16):
        embeddings = encoder(ids.cuda())
    loss = batch_all_triplet_loss(embeddings.float(), labels.cuda())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(step, loss.item())
