"""Retrieval: the corpus is encoded now and then, the nearest that are of another topic are negatives, as many as there are."""
import os
import torch
from torch import nn
import torch.nn.functional as F

device = os.environ.get("DEVICE", "cuda")
torch.manual_seed(3)
DOCS, QUERIES, TOPICS = 20000, 256, 40
encoder = nn.Sequential(nn.EmbeddingBag(5000, 256), nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 128)).to(device)
docs, topics = torch.randint(0, 5000, (DOCS, 64)), torch.randint(0, TOPICS, (DOCS,), device=device)
optimizer = torch.optim.Adam(encoder.parameters(), 1e-3)
for epoch in range(3):
    with torch.no_grad():
        index = torch.cat([F.normalize(encoder(part.to(device)), dim=1) for part in docs.split(4096)])
    for step in range(3):
        chosen = torch.randperm(DOCS, device=device)[:QUERIES]
        queries = F.normalize(encoder(docs[chosen.cpu()].to(device)), dim=1)
        with torch.no_grad():
            near = (queries @ index.T).topk(50).indices
        # A pair of equal topics is no negative.
        other = topics[near] != topics[chosen][:, None]
        which, rank = other.nonzero(as_tuple=True)
        # At most sixteen negatives of each query.
        place = other.long().cumsum(1)[which, rank]
        which, rank = which[place <= 16], rank[place <= 16]
        negatives = near[which, rank]
        used, back = negatives.unique(return_inverse=True)
        vectors = F.normalize(encoder(docs[used.cpu()].to(device)), dim=1)
        # A positive is a document of the same topic, taken at random.
        same = topics[chosen][:, None] == topics[None]
        pos = (torch.rand(same.shape, device=device) * same).argmax(1)
        good = (queries * F.normalize(encoder(docs[pos.cpu()].to(device)), dim=1)).sum(1)
        bad = (queries[which] * vectors[back]).sum(1)
        loss = F.softplus(-good).mean() + torch.zeros(QUERIES, device=device).index_add(0, which, F.softplus(bad)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print("sizes", epoch, step, len(which), len(used))
