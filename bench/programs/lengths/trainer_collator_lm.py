"""The Trainer of transformers with a collator of my own; compute_metrics makes it keep the logits of the whole evaluation."""
import argparse
import json
import os
import tempfile
from dataclasses import dataclass

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

ap = argparse.ArgumentParser()
ap.add_argument("--steps", type=int, default=150)
ap.add_argument("--batch-size", type=int, default=8)
ap.add_argument("--eval-batch-size", type=int, default=8)
ap.add_argument("--eval-every", type=int, default=50)
ap.add_argument("--eval-docs", type=int, default=48)
ap.add_argument("--max-len", type=int, default=512)
ap.add_argument("--dim", type=int, default=768)
ap.add_argument("--layers", type=int, default=8)
ap.add_argument("--vocab", type=int, default=32000)
ap.add_argument("--device", default="cuda")
a = ap.parse_args()


class Conversations(Dataset):
    """A prompt, which does not count in the loss, and an answer."""

    def __init__(self, n, seed):
        rng = np.random.default_rng(seed)
        self.rows = []
        for _ in range(n):
            prompt = int(rng.integers(8, a.max_len // 2))
            answer = int(min(rng.exponential(a.max_len / 4) + 8, a.max_len - prompt))
            self.rows.append((rng.integers(1, a.vocab, prompt + answer), prompt))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        ids, prompt = self.rows[i]
        labels = ids.copy()
        labels[:prompt] = -100
        return {"input_ids": ids.tolist(), "labels": labels.tolist()}


@dataclass
class Collator:
    pad_to: int = 8

    def __call__(self, features):
        longest = max(len(f["input_ids"]) for f in features)
        longest = -(-longest // self.pad_to) * self.pad_to
        fill = lambda row, value: row + [value] * (longest - len(row))
        return {
            "input_ids": torch.tensor([fill(f["input_ids"], 0) for f in features]),
            "attention_mask": torch.tensor([fill([1] * len(f["input_ids"]), 0) for f in features]),
            "labels": torch.tensor([fill(f["labels"], -100) for f in features]),
        }


def compute_metrics(result):
    logits, labels = result.predictions, result.label_ids
    guess = logits[:, :-1].argmax(-1)
    counted = labels[:, 1:] != -100
    return {"accuracy": float((guess == labels[:, 1:])[counted].mean())}


def main():
    set_seed(0)
    config = GPT2Config(
        vocab_size=a.vocab, n_positions=a.max_len + 8, n_embd=a.dim, n_layer=a.layers, n_head=max(a.dim // 64, 1), bos_token_id=0, eos_token_id=0, use_cache=False
    )
    model = GPT2LMHeadModel(config)
    settings = TrainingArguments(
        output_dir=os.path.join(tempfile.gettempdir(), "trainer_collator_lm"),
        max_steps=a.steps,
        per_device_train_batch_size=a.batch_size,
        per_device_eval_batch_size=a.eval_batch_size,
        eval_strategy="steps",
        eval_steps=a.eval_every,
        save_strategy="no",
        logging_steps=10,
        learning_rate=3e-4,
        warmup_steps=10,
        bf16=True,
        report_to="none",
        remove_unused_columns=False,
        dataloader_num_workers=0,
        use_cpu=a.device == "cpu",
        disable_tqdm=True,
    )
    trainer = Trainer(
        model=model,
        args=settings,
        train_dataset=Conversations(150 * a.batch_size, 1),
        eval_dataset=Conversations(a.eval_docs, 2),
        data_collator=Collator(),
        compute_metrics=compute_metrics,
    )
    trainer.train()
    measured = {
        "steps": trainer.state.global_step,
        "peak_allocated": torch.cuda.max_memory_allocated(),
        "peak_reserved": torch.cuda.max_memory_reserved(),
    }
    print("MEASURED", json.dumps(measured))


if __name__ == "__main__":
    main()
