"""A reward model: chosen and rejected answers in one batch, a small Llama with one output in bfloat16, Bradley-Terry loss; larger pairs in evaluation."""
import argparse
import json

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset
from transformers import LlamaConfig, LlamaForSequenceClassification

p = argparse.ArgumentParser()
p.add_argument("--steps", type=int, default=150)
p.add_argument("--batch-size", type=int, default=8, help="pairs")
p.add_argument("--eval-batch-size", type=int, default=16)
p.add_argument("--eval-every", type=int, default=30)
p.add_argument("--max-len", type=int, default=1024)
p.add_argument("--dim", type=int, default=768)
p.add_argument("--layers", type=int, default=10)
p.add_argument("--device", default="cuda")
args = p.parse_args()
VOCAB, PAD = 32000, 0


class Preferences(Dataset):
    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        prompt = torch.randint(16, args.max_len // 2, (n,), generator=g)
        answers = torch.exp(torch.randn(n, 2, generator=g) * 0.9 + 4.6).clamp(4, args.max_len // 2).long()
        self.sizes = torch.cat([prompt[:, None], answers], dim=1).tolist()

    def __len__(self):
        return len(self.sizes)

    def __getitem__(self, i):
        prompt, chosen, rejected = self.sizes[i]
        g = torch.Generator().manual_seed(i)
        words = lambda n: torch.randint(1, VOCAB, (n,), generator=g)
        asked = words(prompt)
        return {"chosen": torch.cat([asked, words(chosen)]), "rejected": torch.cat([asked, words(rejected)])}


class PairCollator:
    def __call__(self, pairs):
        rows = [pair["chosen"] for pair in pairs] + [pair["rejected"] for pair in pairs]
        longest = max(map(len, rows))
        ids = torch.full((len(rows), longest), PAD)
        for row, into in zip(rows, ids):
            into[: len(row)] = row
        return {"input_ids": ids, "attention_mask": (ids != PAD).long()}


def rewards(model, batch):
    batch = {name: value.to(args.device, non_blocking=True) for name, value in batch.items()}
    return model(**batch).logits.float().squeeze(-1).chunk(2)


def evaluate(model, loader):
    model.eval()
    margins = []
    with torch.no_grad():
        for batch in loader:
            chosen, rejected = rewards(model, batch)
            margins.append(chosen - rejected)
    model.train()
    margins = torch.cat(margins)
    return (margins > 0).float().mean().item(), margins.mean().item()


torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=VOCAB,
    hidden_size=args.dim,
    intermediate_size=args.dim * 8 // 3,
    num_hidden_layers=args.layers,
    num_attention_heads=args.dim // 64,
    num_key_value_heads=max(1, args.dim // 192),
    max_position_embeddings=2048,
    num_labels=1,
    pad_token_id=PAD,
    bos_token_id=None,
    eos_token_id=None,
    use_cache=False,
)
model = LlamaForSequenceClassification(config).to(args.device, torch.bfloat16)
train = DataLoader(
    Preferences(150 * args.batch_size, 1),
    args.batch_size,
    shuffle=True,
    generator=torch.Generator().manual_seed(9),
    collate_fn=PairCollator(),
    pin_memory=args.device == "cuda",
)
valid = DataLoader(Preferences(4 * args.eval_batch_size, 2), args.eval_batch_size, collate_fn=PairCollator())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, args.steps)
step = 0
while step < args.steps:
    for batch in train:
        chosen, rejected = rewards(model, batch)
        loss = -F.logsigmoid(chosen - rejected).mean() + 0.001 * (chosen + rejected).pow(2).mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        step += 1
        if step % 10 == 0:
            print(f"step {step} tokens {batch['input_ids'].numel()} loss {loss.item():.4f}")
        if step % args.eval_every == 0:
            accuracy, margin = evaluate(model, valid)
            print(f"step {step} right {accuracy:.3f} margin {margin:.4f}")
        if step >= args.steps:
            break
print("MEASURED", json.dumps({"steps": step, "peak_allocated": torch.cuda.max_memory_allocated(), "peak_reserved": torch.cuda.max_memory_reserved()}))
