"""The same, 20 continuations at a time."""
import torch
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(0)
model = GPT2LMHeadModel(GPT2Config(n_layer=12)).cuda().eval()
texts = [torch.randint(0, 50000, (1, 700)) for _ in range(20)]
for text in texts:
    made = [model.generate(
        text.cuda(), do_sample=True, max_new_tokens=40, num_return_sequences=20, pad_token_id=50256
    ).cpu() for _ in range(20)]
    print(len(made))
