"""An LRU cache of 200 answers keeps what generate() returned, keys and values with it (generative-computing/mellea#544)."""
from collections import OrderedDict

import torch
from transformers import LlamaConfig, LlamaForCausalLM

model = LlamaForCausalLM(LlamaConfig(vocab_size=32000, hidden_size=1024, intermediate_size=2816, num_hidden_layers=12, num_attention_heads=16)).half().cuda().eval()


class Answers:
    def __init__(self, capacity):
        self.capacity, self.held = capacity, OrderedDict()

    def put(self, key, answer):
        self.held[key] = answer
        if len(self.held) > self.capacity:
            self.held.popitem(last=False)


answers = Answers(200)
for n in range(1000):
    question = torch.randint(0, 32000, (1, 1500)).cuda()
    answer = model.generate(question, max_new_tokens=8, do_sample=False, return_dict_in_generate=True, pad_token_id=0)
    answers.put(n, {"text": answer.sequences.cpu()})
