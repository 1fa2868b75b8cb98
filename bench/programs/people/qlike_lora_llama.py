"""LoRA on a frozen bf16 Llama with gradient checkpointing; lengths of a batch differ; the loss only on answers."""
import random

import torch
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader
from transformers import LlamaConfig, LlamaForCausalLM, get_cosine_schedule_with_warmup

random.seed(0)
torch.manual_seed(0)
config = LlamaConfig(hidden_size=2048, intermediate_size=5632, num_hidden_layers=22, num_attention_heads=32, num_key_value_heads=4, vocab_size=128256)
with torch.device("cuda"):
    model = LlamaForCausalLM(config).to(torch.bfloat16)
model.config.use_cache = False
model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
model.enable_input_require_grads()
model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"], lora_dropout=0.05, task_type="CAUSAL_LM"))
model.print_trainable_parameters()


def collate(items):
    longest = max(len(it) for it in items)
    ids = torch.zeros(len(items), longest, dtype=torch.long)
    labels = torch.full((len(items), longest), -100)
    for n, it in enumerate(items):
        ids[n, : len(it)] = it
        labels[n, len(it) // 2 : len(it)] = it[len(it) // 2 :]
    return {"input_ids": ids, "attention_mask": (ids != 0).long(), "labels": labels}


data = [torch.randint(1, 128000, (random.randint(200, 1024),)) for _ in range(400)]
loader = DataLoader(data, batch_size=6, shuffle=True, collate_fn=collate)
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=2e-4)
schedule = get_cosine_schedule_with_warmup(optimizer, 5, len(loader))
model.train()
for step, batch in enumerate(loader):
    batch = {k: v.cuda() for k, v in batch.items()}
    loss = model(**batch).loss
    loss.backward()
    optimizer.step()
    schedule.step()
    optimizer.zero_grad()
    if step % 10 == 0:
        print(step, loss.item())
