"""cause: size/model-states at line 19
memory: 3GiB
why: weights, gradients and two moments of 220 million parameters; a batch of one short text.
"""
import torch
from transformers import LlamaConfig, LlamaForCausalLM

config = LlamaConfig(
    vocab_size=8000, hidden_size=1024, intermediate_size=4096, num_hidden_layers=12, num_attention_heads=16,
    num_key_value_heads=16, max_position_embeddings=64,
)
model = LlamaForCausalLM(config).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for step in range(3):
    ids = torch.randint(0, 8000, (1, 16), device="cuda")
    loss = model(input_ids=ids, labels=ids).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # here
