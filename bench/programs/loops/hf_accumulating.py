"""transformers' Trainer with gradient_accumulation_steps, for token classification."""

import torch
from transformers import BertConfig, BertForTokenClassification, Trainer, TrainingArguments

N_LABELS, LENGTH = 9, 384


class Sentences(torch.utils.data.Dataset):
    def __init__(self, n, vocab):
        self.n, self.vocab = n, vocab

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        labels = torch.randint(N_LABELS, (LENGTH,), generator=g)
        labels[LENGTH - 17 * (i % 5) :] = -100
        return {
            "input_ids": torch.randint(self.vocab, (LENGTH,), generator=g),
            "attention_mask": torch.ones(LENGTH, dtype=torch.long),
            "labels": labels,
        }


def main():
    config = BertConfig(num_labels=N_LABELS)
    model = BertForTokenClassification(config)
    args = TrainingArguments(
        output_dir="hf-accumulating", per_device_train_batch_size=48, gradient_accumulation_steps=2, max_steps=12,
        learning_rate=5e-5, warmup_steps=2, logging_steps=4, save_strategy="no", report_to=[], disable_tqdm=True,
        per_device_eval_batch_size=64, eval_strategy="steps", eval_steps=6,
    )
    trainer = Trainer(
        model=model, args=args, train_dataset=Sentences(2000, config.vocab_size), eval_dataset=Sentences(130, config.vocab_size)
    )
    trainer.train()


if __name__ == "__main__":
    main()
