"""expect: fits, generation (64 forward passes)
why: 64 new words are written: one pass reads the prompt and gives the first, 63 give the others. There is no optimizer.
"""
import torch
from transformers import GPT2Config, GPT2LMHeadModel

config = GPT2Config(n_layer=4, n_head=4, n_embd=256, vocab_size=5000, n_positions=512, bos_token_id=0, eos_token_id=0, pad_token_id=0)
model = GPT2LMHeadModel(config).cuda().eval()
prompt = torch.randint(1, 5000, (8, 100), device="cuda")
words = model.generate(prompt, max_new_tokens=64, min_new_tokens=64, do_sample=False)
print(words.shape)
