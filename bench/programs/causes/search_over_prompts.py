"""cause: growth/per-step at line 27
also right: leak/results-kept
also right: line 25
also right: line 24
memory: 2GiB
why: a server keeps the hidden states of each conversation, longer with each answer, and forgets no conversation.
"""
import random

import torch
from torch import nn

random.seed(3)


class Server:
    def __init__(self):
        layer = nn.TransformerEncoderLayer(512, 8, 1024, batch_first=True)
        self.net = nn.TransformerEncoder(layer, 4).cuda().eval()
        self.states = {}

    @torch.no_grad()
    def answer(self, who, words):
        x = torch.randn(1, words, 512, device="cuda")
        out = self.net(x)[0]
        old = self.states.get(who)
        self.states[who] = out if old is None else torch.cat((old, out))  # here
        return out[-1].sum()


server = Server()
for turn in range(6000):
    server.answer(f"user {random.randrange(60)}", random.randrange(40, 400))
