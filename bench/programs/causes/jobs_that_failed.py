"""cause: leak/traceback-kept at line 46
also right: leak/results-kept
also right: growth/per-step
also right: line 33
also right: line 34
also right: line 49
memory: 2GiB
why: a worker remembers each job's error for a report; an error holds the frames of its call, and those what the model had computed.
"""
import random

import torch
from torch import nn


class Tagger(nn.Module):
    def __init__(self, words=5000, width=768, layers=6):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(width, 12, 4 * width, batch_first=True) for _ in range(layers))
        self.head = nn.Linear(width, 512)

    def forward(self, ids):
        x = self.words(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


@torch.inference_mode()
def tag(model, job):
    ids = torch.tensor(job["ids"], device="cuda")
    scores = model(ids).double()
    likely = scores.softmax(-1)
    if job["labels"] > likely.shape[-1]:
        raise ValueError(f"job {job['number']} wants {job['labels']} labels, the model has {likely.shape[-1]}")
    return likely[..., : job["labels"]].argmax(-1).tolist()


random.seed(0)
model = Tagger().cuda().eval()
done, failed = [], []
for number in range(400):
    job = {"number": number, "labels": random.choice([128, 256, 600]), "ids": [[random.randrange(5000) for _ in range(512)] for _ in range(16)]}
    try:
        done.append(tag(model, job))  # here
    except ValueError as error:
        job["error"] = error
        failed.append(job)
print(len(done), "done,", len(failed), "failed")
