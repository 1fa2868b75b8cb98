"""cause: leak/eval-without-no-grad at line 37
also right: leak/graph-retained
also right: line 33
memory: 2GiB
why: a retriever encodes the whole corpus before its first epoch, to find hard negatives, and no_grad is missing.
"""
import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch import nn


class Encoder(nn.Module):
    def __init__(self, words=20_000, width=256, layers=3):
        super().__init__()
        self.words = nn.Embedding(words, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True)
        self.body = nn.TransformerEncoder(layer, layers)

    def forward(self, ids):
        return F.normalize(self.body(self.words(ids)).mean(1), dim=-1)


class Retriever:
    def __init__(self, accelerator, queries, passages):
        self.accelerator = accelerator
        self.encoder = Encoder()
        self.optimizer = torch.optim.AdamW(self.encoder.parameters(), lr=2e-5)
        self.encoder, self.optimizer = accelerator.prepare(self.encoder, self.optimizer)
        self.queries, self.passages = queries, passages

    def encode(self, texts):
        return torch.cat([self.encoder(it.to(self.accelerator.device)) for it in texts.split(64)])

    def mine(self, k=4):
        """The passages that look most like a query and are not its answer."""
        vectors = self.encode(self.passages)  # here
        negatives = []
        for some in self.queries.split(64):
            scores = self.encode(some) @ vectors.t()
            negatives.append(scores.topk(k + 1).indices[:, 1:].cpu())
        return torch.cat(negatives)

    def epoch(self, negatives):
        for at in torch.randperm(len(self.queries)).split(16):
            query = self.encode(self.queries[at])
            good = self.encode(self.passages[at])
            bad = self.encode(self.passages[negatives[at, 0]])
            scores = query @ torch.cat([good, bad]).t()
            loss = F.cross_entropy(scores, torch.arange(len(at), device=scores.device))
            self.optimizer.zero_grad()
            self.accelerator.backward(loss)
            self.optimizer.step()


torch.manual_seed(0)
retriever = Retriever(Accelerator(), torch.randint(0, 20_000, (512, 32)), torch.randint(0, 20_000, (8192, 64)))
for epoch in range(2):
    retriever.epoch(retriever.mine())
