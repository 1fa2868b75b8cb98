"""cause: leak/results-kept at line 27
also right: growth/per-step
also right: line 35
also right: line 28
memory: 2GiB
why: decoding keeps the scores of all words for each step, for each sentence.
"""
import torch
from torch import nn


class Decoder(nn.Module):
    def __init__(self, words=32000, width=256):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.cell = nn.GRUCell(width, width)
        self.out = nn.Linear(width, words)

    @torch.inference_mode()
    def decode(self, state, steps):
        token = torch.zeros(len(state), dtype=torch.long, device=state.device)
        scores = []
        for _ in range(steps):
            state = self.cell(self.words(token), state)
            logits = self.out(state)
            token = logits.argmax(-1)
            probabilities = logits.log_softmax(-1)
            scores.append(probabilities)  # the line above makes them
        return scores


decoder = Decoder().cuda().eval()
everything = []
for batch in range(100):
    everything.append(decoder.decode(torch.randn(32, 256, device="cuda"), 12))
