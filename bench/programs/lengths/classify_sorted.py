"""BERT on reviews: batches of like length by sorting all of them, batches in random order; the test set longest first, in larger batches."""
import argparse
import json

import torch
from torch.utils.data import DataLoader, Dataset
from transformers import BertConfig, BertForSequenceClassification, get_linear_schedule_with_warmup


class Reviews(Dataset):
    def __init__(self, n, longest, vocab, seed):
        g = torch.Generator().manual_seed(seed)
        lengths = torch.exp(torch.randn(n, generator=g) * 0.8 + 4.8).clamp(12, longest).long().tolist()
        self.rows = [(torch.randint(5, vocab, (length,), generator=g), length % 5) for length in lengths]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


class SortedBatches(torch.utils.data.Sampler):
    def __init__(self, data, size):
        order = sorted(range(len(data)), key=lambda i: len(data[i][0]))
        self.batches = [order[i : i + size] for i in range(0, len(order), size)]

    def __iter__(self):
        return (self.batches[i] for i in torch.randperm(len(self.batches)).tolist())

    def __len__(self):
        return len(self.batches)


def collate(rows):
    ids = torch.nn.utils.rnn.pad_sequence([r for r, _ in rows], batch_first=True)
    return {"input_ids": ids, "attention_mask": (ids != 0).long(), "labels": torch.tensor([y for _, y in rows])}


def test(model, loader, device):
    model.eval()
    confusion = torch.zeros(5, 5, dtype=torch.long)
    with torch.no_grad():
        for batch in loader:
            labels = batch.pop("labels")
            with torch.autocast(device, dtype=torch.bfloat16):
                guess = model(**{k: v.to(device) for k, v in batch.items()}).logits.argmax(-1)
            confusion.index_put_((labels, guess.cpu()), torch.ones_like(labels), accumulate=True)
    model.train()
    return confusion.diag().sum().item() / confusion.sum().item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=250)
    ap.add_argument("--batch-size", type=int, default=24)
    ap.add_argument("--eval-every", type=int, default=50)
    ap.add_argument("--max-len", type=int, default=512)
    ap.add_argument("--dim", type=int, default=768)
    ap.add_argument("--layers", type=int, default=12)
    ap.add_argument("--device", default="cuda")
    a = ap.parse_args()
    torch.manual_seed(2024)
    vocab = 30522
    config = BertConfig(
        vocab_size=vocab, hidden_size=a.dim, num_hidden_layers=a.layers, num_attention_heads=a.dim // 64, intermediate_size=4 * a.dim, num_labels=5
    )
    model = BertForSequenceClassification(config).to(a.device).train()
    train_set, test_set = Reviews(250 * a.batch_size, a.max_len, vocab, 1), Reviews(16 * a.batch_size, a.max_len, vocab, 2)
    test_set.rows.sort(key=lambda row: -len(row[0]))
    train = DataLoader(train_set, batch_sampler=SortedBatches(train_set, a.batch_size), collate_fn=collate)
    tests = DataLoader(test_set, batch_size=4 * a.batch_size, collate_fn=collate)
    slow = [p for n, p in model.named_parameters() if "bias" in n or "LayerNorm" in n]
    rest = [p for n, p in model.named_parameters() if not ("bias" in n or "LayerNorm" in n)]
    optimizer = torch.optim.AdamW([{"params": rest, "weight_decay": 0.01}, {"params": slow, "weight_decay": 0.0}], lr=3e-5)
    schedule = get_linear_schedule_with_warmup(optimizer, 25, a.steps)
    step = 0
    while step < a.steps:
        for batch in train:
            batch = {k: v.to(a.device) for k, v in batch.items()}
            with torch.autocast(a.device, dtype=torch.bfloat16):
                loss = model(**batch).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            model.zero_grad()
            step += 1
            if step % a.eval_every == 0:
                print(f"step {step} length {batch['input_ids'].shape[1]} loss {loss.item():.3f} test {test(model, tests, a.device):.3f}")
            if step >= a.steps:
                break
    print("MEASURED", json.dumps({"steps": step, "peak_allocated": torch.cuda.max_memory_allocated(), "peak_reserved": torch.cuda.max_memory_reserved()}))


if __name__ == "__main__":
    main()
