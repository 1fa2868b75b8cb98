"""A text is continued token by token; the scores of all 128,000 words are stored for each token only where somebody asks for them."""
import torch
from torch import nn

WORDS = 128_000
embedding, cell, head = nn.Embedding(WORDS, 512).cuda(), nn.GRUCell(512, 512).cuda(), nn.Linear(512, WORDS).cuda()


@torch.inference_mode()
def generate(tokens, length, output_scores=False):
    state = torch.zeros(len(tokens), 512, device="cuda")
    scores, found = [], [tokens]
    for _ in range(length):
        state = cell(embedding(found[-1]), state)
        now = head(state).float()
        found.append(now.argmax(-1))
        if output_scores:
            scores.append(now)
    texts = torch.stack(found, 1)
    return (texts, scores) if output_scores else texts


print(generate(torch.zeros(32, dtype=torch.long, device="cuda"), 2000).shape)
