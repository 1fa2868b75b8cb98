"""cause: leak/results-kept at line 17
also right: growth/per-step
also right: growth/kv-cache
also right: leak/eval-without-no-grad
also right: line 16
memory: 2GiB
why: the scores of each word that is generated are kept for all prompts.
"""
import torch
from transformers import GPT2Config, GPT2LMHeadModel

model = GPT2LMHeadModel(GPT2Config(vocab_size=32000, n_embd=256, n_layer=2, n_head=4, n_positions=512)).cuda().eval()
scores = []
for prompt in range(100):
    ids = torch.randint(0, 32000, (8, 16), device="cuda")
    out = model.generate(ids, max_new_tokens=32, do_sample=False, output_scores=True, return_dict_in_generate=True, pad_token_id=0)
    scores.append(out.scores)  # here
