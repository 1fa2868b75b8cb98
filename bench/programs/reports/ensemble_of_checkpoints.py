"""A translation model is evaluated; a pattern of names loads every checkpoint of the training, and the ensemble holds all of them."""
import torch
from torch import nn


def build():
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(1024, 16, 4096, batch_first=True), 6)


checkpoints = [f"enzh_step_{n}.pt" for n in range(5_000, 155_000, 5_000)]
models = [build().cuda().eval() for _ in checkpoints]


@torch.no_grad()
def translate(x):
    return torch.stack([model(x) for model in models]).mean(0)


for i in range(20):
    print(translate(torch.randn(8, 64, 1024).cuda()).shape)
