"""RoBERTa of `transformers` in a loop of one's own: bfloat16, gradients of two batches, a linear schedule, masking by hand."""
import torch
from torch import nn
from transformers import RobertaConfig, RobertaForMaskedLM, get_linear_schedule_with_warmup

BATCH, LENGTH, ADDED = 24, 256, 2

torch.manual_seed(0)
config = RobertaConfig(vocab_size=30000, num_hidden_layers=10, hidden_size=768, num_attention_heads=12, max_position_embeddings=514)
model = RobertaForMaskedLM(config).cuda().train()
plain = [p for n, p in model.named_parameters() if "LayerNorm" in n or n.endswith("bias")]
others = [p for n, p in model.named_parameters() if not ("LayerNorm" in n or n.endswith("bias"))]
optimizer = torch.optim.AdamW([{"params": others, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}], lr=1e-4)
schedule = get_linear_schedule_with_warmup(optimizer, 10, 1000)
for step in range(50):
    ids = torch.randint(5, 30000, (BATCH, LENGTH), device="cuda")
    chosen = torch.rand(ids.shape, device="cuda") < 0.15
    with torch.autocast("cuda", dtype=torch.bfloat16):
        out = model(torch.where(chosen, 4, ids), attention_mask=torch.ones_like(ids), labels=torch.where(chosen, ids, -100))
    (out.loss / ADDED).backward()
    if (step + 1) % ADDED == 0:
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    if step % 10 == 0:
        print(step, out.loss.item())
