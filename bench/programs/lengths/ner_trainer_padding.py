"""Named entities with transformers' Trainer: sentences and paragraphs of 6 to 480 tokens, padded to a multiple of eight, metrics at each evaluation."""
import argparse
import json
import tempfile
from dataclasses import dataclass

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForTokenClassification, Trainer, TrainingArguments, set_seed

LABELS = 23


@dataclass
class PadToMultiple:
    multiple: int = 8

    def __call__(self, rows):
        longest = max(len(r["input_ids"]) for r in rows)
        longest = -(-longest // self.multiple) * self.multiple
        out = {"input_ids": torch.zeros(len(rows), longest, dtype=torch.long)}
        out["attention_mask"] = torch.zeros_like(out["input_ids"])
        out["labels"] = torch.full_like(out["input_ids"], -100)
        for i, row in enumerate(rows):
            n = len(row["input_ids"])
            out["input_ids"][i, :n], out["attention_mask"][i, :n], out["labels"][i, :n] = row["input_ids"], 1, row["labels"]
        return out


class Sentences(Dataset):
    def __init__(self, n, most, seed):
        g = torch.Generator().manual_seed(seed)
        lengths = (6 + (most - 6) * torch.rand(n, generator=g) ** 4).long()
        self.rows = [(torch.randint(5, 30000, (int(k),), generator=g), torch.randint(0, LABELS, (int(k),), generator=g)) for k in lengths]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        ids, labels = self.rows[i]
        return {"input_ids": ids, "labels": labels}


def metrics(told):
    logits, labels = told
    keep = labels != -100
    return {"right": float((np.argmax(logits, -1) == labels)[keep].mean())}


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=400)
    ap.add_argument("--batch-size", type=int, default=32)
    ap.add_argument("--eval-batch-size", type=int, default=64)
    ap.add_argument("--eval-every", type=int, default=100)
    ap.add_argument("--most", type=int, default=480)
    a = ap.parse_args()
    set_seed(3)
    model = BertForTokenClassification(BertConfig(vocab_size=30000, hidden_size=640, num_hidden_layers=10, num_attention_heads=10, intermediate_size=2560, num_labels=LABELS))
    args = TrainingArguments(
        tempfile.mkdtemp(), max_steps=a.steps, per_device_train_batch_size=a.batch_size, per_device_eval_batch_size=a.eval_batch_size, eval_strategy="steps",
        eval_steps=a.eval_every, save_strategy="no", report_to=[], logging_steps=20, learning_rate=3e-5, warmup_steps=20, bf16=True, dataloader_drop_last=True,
    )
    trainer = Trainer(model, args, train_dataset=Sentences(12_000, a.most, 1), eval_dataset=Sentences(320, a.most, 2), data_collator=PadToMultiple(), compute_metrics=metrics)
    trainer.train()
    print("MEASURED", json.dumps({"steps": trainer.state.global_step, "peak_allocated": torch.cuda.max_memory_allocated(), "peak_reserved": torch.cuda.max_memory_reserved()}))


if __name__ == "__main__":
    main()
