"""Language model with gradient accumulation; the evaluation keeps the logits of all held-out tokens on the GPU, for perplexity and calibration."""
import argparse
import json

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

VOCAB = 16384


def arguments():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=200, help="optimizer steps")
    p.add_argument("--batch-size", type=int, default=4)
    p.add_argument("--accumulate", type=int, default=4)
    p.add_argument("--eval-every", type=int, default=40)
    p.add_argument("--eval-docs", type=int, default=80)
    p.add_argument("--max-len", type=int, default=768)
    p.add_argument("--dim", type=int, default=640)
    p.add_argument("--layers", type=int, default=10)
    p.add_argument("--device", default="cuda")
    return p.parse_args()


class Chunks(Dataset):
    def __init__(self, n, longest, seed):
        g = torch.Generator().manual_seed(seed)
        # Most are short, some fill the context.
        lengths = (torch.rand(n, generator=g) ** 2 * (longest - 48) + 48).int().tolist()
        self.rows = [torch.randint(2, VOCAB, (length,), generator=g, dtype=torch.int32) for length in lengths]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i].long()


def collate(rows):
    longest = max(map(len, rows))
    out = torch.full((len(rows), longest), -100)
    for i, row in enumerate(rows):
        out[i, : len(row)] = row
    return out


class Model(nn.Module):
    def __init__(self, dim, layers, longest):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, dim)
        self.where = nn.Parameter(torch.randn(longest, dim) * 0.02)
        layer = nn.TransformerEncoderLayer(dim, dim // 64, 4 * dim, dropout=0.1, activation="gelu", batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, layers, norm=nn.LayerNorm(dim), enable_nested_tensor=False)
        self.out = nn.Linear(dim, VOCAB)

    def forward(self, labels):
        n = labels.shape[1]
        x = self.embed(labels.clamp(min=0)) + self.where[:n]
        mask = nn.Transformer.generate_square_subsequent_mask(n, device=x.device)
        return self.out(self.body(x, mask=mask, is_causal=True))


def evaluate(model, loader, device):
    """Loss and expected calibration error over all tokens at once."""
    model.eval()
    all_logits, all_targets = [], []
    with torch.no_grad():
        for labels in loader:
            labels = labels.to(device)
            with torch.autocast(device, dtype=torch.bfloat16):
                logits = model(labels)
            kept = labels[:, 1:] >= 0
            all_logits.append(logits[:, :-1][kept].float())
            all_targets.append(labels[:, 1:][kept])
        logits, targets = torch.cat(all_logits), torch.cat(all_targets)
        loss = nn.functional.cross_entropy(logits, targets)
        sure, guess = logits.softmax(-1).max(-1)
        bins = (sure * 10).long().clamp(max=9)
        gap = torch.zeros(10, device=device).index_add_(0, bins, sure - (guess == targets).float())
    model.train()
    return loss.item(), (gap.abs().sum() / len(targets)).item()


def main():
    a = arguments()
    torch.manual_seed(1)
    model = Model(a.dim, a.layers, a.max_len).to(a.device)
    train = DataLoader(Chunks(200 * a.batch_size * a.accumulate, a.max_len, 3), a.batch_size, shuffle=True, collate_fn=collate)
    valid = DataLoader(Chunks(a.eval_docs, a.max_len, 4), 8, collate_fn=collate)
    opt = torch.optim.AdamW(model.parameters(), lr=2e-4, betas=(0.9, 0.95))
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, a.steps)
    step = 0
    while step < a.steps:
        for i, labels in enumerate(train):
            labels = labels.to(a.device, non_blocking=True)
            with torch.autocast(a.device, dtype=torch.bfloat16):
                logits = model(labels)
                loss = nn.functional.cross_entropy(logits[:, :-1].transpose(1, 2), labels[:, 1:], ignore_index=-100)
            (loss / a.accumulate).backward()
            if (i + 1) % a.accumulate:
                continue
            opt.step()
            sched.step()
            opt.zero_grad()
            step += 1
            if step % a.eval_every == 0:
                print(step, loss.item(), *evaluate(model, valid, a.device))
            if step >= a.steps:
                break
    cuda = torch.cuda
    print("MEASURED", json.dumps({"steps": step, "peak_allocated": cuda.max_memory_allocated(), "peak_reserved": cuda.max_memory_reserved()}))


if __name__ == "__main__":
    main()
