"""LoRA on a Llama of a configuration, merged in the end."""

import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

config = LlamaConfig(hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, vocab_size=1000)
model = get_peft_model(LlamaForCausalLM(config), LoraConfig(r=8, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")).cuda()
optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
for _ in range(4):
    ids = torch.randint(0, 1000, (4, 64), device="cuda")
    model(input_ids=ids, labels=ids).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
model.merge_and_unload()
