"""A model in single precision answers under autocast: its weights are there twice (huggingface/transformers#8403, pytorch/pytorch#48049)."""
import torch
from transformers import LlamaConfig, LlamaForCausalLM

config = LlamaConfig(hidden_size=2560, intermediate_size=6912, num_hidden_layers=28, num_attention_heads=20, num_key_value_heads=20, vocab_size=32000)
with torch.device("cuda"):
    model = LlamaForCausalLM(config).to(torch.bfloat16).eval()
with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
    for n in range(20):
        ids = torch.randint(0, 32000, (1, 512), device="cuda")
        print(n, model(input_ids=ids, use_cache=False).logits[0, -1].argmax().item())
