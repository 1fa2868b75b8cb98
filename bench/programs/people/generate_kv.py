"""Answers from a Llama in bfloat16: many prompts at once with transformers' generate and its key-value cache. No training."""

import time

import torch
from transformers import LlamaConfig, LlamaForCausalLM

config = LlamaConfig(hidden_size=1536, intermediate_size=4096, num_hidden_layers=20, num_attention_heads=16, vocab_size=32000, max_position_embeddings=4096)
model = LlamaForCausalLM(config).to(torch.bfloat16).cuda().eval()
prompts = torch.randint(3, 32000, (96, 512))
answers = []
for start in range(0, len(prompts), 48):
    batch = prompts[start : start + 48].cuda()
    began = time.time()
    with torch.inference_mode():
        out = model.generate(batch, attention_mask=torch.ones_like(batch), max_new_tokens=64, min_new_tokens=64, do_sample=False, pad_token_id=0)
    answers.extend(out[:, batch.shape[1] :].tolist())
    print(f"{start}: {time.time() - began:.1f} s")
print(len(answers), "answers")
