"""peft's LoRA on a Llama in float16, padded instructions, accumulation of four."""

import torch
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader
from transformers import LlamaConfig, LlamaForCausalLM, get_linear_schedule_with_warmup

torch.manual_seed(42)
config = LlamaConfig(hidden_size=2048, intermediate_size=5504, num_hidden_layers=18, num_attention_heads=16, num_key_value_heads=8, vocab_size=32000)
model = LlamaForCausalLM(config).half()
model.config.use_cache = False
peft_config = LoraConfig(r=8, lora_alpha=16, lora_dropout=0.05, target_modules=["q_proj", "k_proj", "v_proj", "o_proj"], task_type="CAUSAL_LM")
model = get_peft_model(model, peft_config)
model.print_trainable_parameters()
model.to("cuda")


def collate(rows):
    longest = max(len(r) for r in rows)
    ids = torch.full((len(rows), longest), 2)
    mask = torch.zeros(len(rows), longest, dtype=torch.long)
    for i, r in enumerate(rows):
        ids[i, : len(r)], mask[i, : len(r)] = r, 1
    labels = ids.masked_fill(mask == 0, -100)
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


g = torch.Generator().manual_seed(0)
rows = [torch.randint(3, 32000, (int(torch.randint(200, 768, (1,), generator=g)),), generator=g) for _ in range(512)]
loader = DataLoader(rows, batch_size=8, shuffle=True, collate_fn=collate, drop_last=True)
optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=1e-4)
scheduler = get_linear_schedule_with_warmup(optimizer, 5, 100)
grad_accum = 4
model.train()
for epoch in range(1):
    for step, batch in enumerate(loader):
        batch = {k: v.cuda() for k, v in batch.items()}
        loss = model(**batch).loss / grad_accum
        loss.backward()
        if (step + 1) % grad_accum == 0:
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
model.save_pretrained("lora-out")
