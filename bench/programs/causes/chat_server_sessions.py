"""cause: growth/per-step at line 27
also right: growth/kv-cache
also right: leak/results-kept
also right: line 28
also right: line 32
memory: 2GiB
why: a chat server keeps the keys and values of each session, so that the next turn is quick, and never forgets a session.
"""
import random

import torch
from transformers import DynamicCache, GPT2Config, GPT2LMHeadModel


class ChatServer:
    def __init__(self):
        config = GPT2Config(vocab_size=8000, n_embd=768, n_layer=8, n_head=12, n_positions=1024)
        self.model = GPT2LMHeadModel(config).cuda().eval()
        self.sessions = {}

    @torch.inference_mode()
    def answer(self, user, prompt, words=3):
        cache = self.sessions.get(user) or DynamicCache()
        ids = torch.tensor([prompt], device="cuda")
        said = []
        for _ in range(words):
            out = self.model(input_ids=ids, past_key_values=cache, use_cache=True)  # here
            cache = out.past_key_values
            ids = out.logits[:, -1].argmax(-1, keepdim=True)
            said.append(ids)
        if cache.get_seq_length() < 900:
            self.sessions[user] = cache
        return torch.cat(said, 1).tolist()[0]


random.seed(3)
server = ChatServer()
for request in range(1000):
    user = f"user-{random.randrange(100_000)}"
    prompt = [random.randrange(8000) for _ in range(random.randint(200, 480))]
    server.answer(user, prompt)
