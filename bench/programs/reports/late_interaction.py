"""Retrieval with late interaction: every query of the batch is compared with every passage, word by word (Automodel#2283)."""
import torch
from torch import nn


class Encoder(nn.Module):
    def __init__(self, words=30522, width=256, layers=4, out=128):
        super().__init__()
        self.words = nn.Embedding(words, width)
        layer = nn.TransformerEncoderLayer(width, 8, 4 * width, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.out = nn.Linear(width, out, bias=False)

    def forward(self, ids):
        return nn.functional.normalize(self.out(self.body(self.words(ids))), dim=-1)


def maxsim(queries, passages, passage_mask):
    scores = torch.einsum("qid,pjd->qpij", queries, passages)
    scores = scores.masked_fill(~passage_mask[None, :, None, :], -1e4)
    return scores.max(-1).values.sum(-1)


def contrastive(queries, passages, passage_mask, temperature=0.02):
    scores = maxsim(queries, passages, passage_mask) / temperature
    labels = torch.arange(len(queries), device=queries.device) * 2
    return nn.functional.cross_entropy(scores, labels)


def batches(n, queries=256, query_words=32, passage_words=256):
    for _ in range(n):
        yield (
            torch.randint(1, 30522, (queries, query_words)),
            torch.randint(1, 30522, (2 * queries, passage_words)),
        )


encoder = Encoder().cuda()
optimizer = torch.optim.AdamW(encoder.parameters(), lr=3e-6)
scaler = torch.amp.GradScaler()
for step, (query_ids, passage_ids) in enumerate(batches(20000)):
    query_ids, passage_ids = query_ids.cuda(), passage_ids.cuda()
    with torch.autocast("cuda"):
        queries, passages = encoder(query_ids), encoder(passage_ids)
    loss = contrastive(queries.float(), passages.float(), passage_ids != 0)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    if step % 200 == 0:
        print(step, loss.item())
