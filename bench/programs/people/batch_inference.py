"""Answers for a pile of prompts with transformers' generate: left-padded, sampled, written to a file."""

import json

import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(1)
config = LlamaConfig(
    hidden_size=2048, intermediate_size=5632, num_hidden_layers=22, num_attention_heads=32, num_key_value_heads=32, vocab_size=32000,
    max_position_embeddings=4096, pad_token_id=0, bos_token_id=1, eos_token_id=2,
)
model = LlamaForCausalLM(config).to(torch.bfloat16).cuda().eval()
answers = []
for start in range(2):
    lengths = torch.randint(400, 1024, (16,))
    longest = int(lengths.max())
    mask = (torch.arange(longest)[None] >= longest - lengths[:, None]).long()
    ids = torch.randint(3, 32000, (16, longest)) * mask
    out = model.generate(
        input_ids=ids.cuda(),
        attention_mask=mask.cuda(),
        max_new_tokens=48,
        do_sample=True,
        top_p=0.9,
    )
    answers += out[:, longest:].tolist()
with open("answers.json", "w") as file:
    json.dump(answers, file)
