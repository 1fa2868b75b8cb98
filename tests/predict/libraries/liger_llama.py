"""A Llama with Liger's kernels of Triton."""

import torch
from liger_kernel.transformers import apply_liger_kernel_to_llama
from transformers import LlamaConfig, LlamaForCausalLM

apply_liger_kernel_to_llama()
config = LlamaConfig(hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, vocab_size=2000)
model = LlamaForCausalLM(config).cuda().bfloat16()
optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
for _ in range(4):
    ids = torch.randint(0, 2000, (4, 128), device="cuda")
    model(input_ids=ids, labels=ids).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
