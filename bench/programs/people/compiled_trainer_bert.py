"""A Trainer that compiles its model itself (`torch_compile`), bf16, a classification head, evaluation each few steps."""

import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments


class Reviews(Dataset):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        return {"input_ids": torch.randint(30000, (384,), generator=g), "attention_mask": torch.ones(384, dtype=torch.long), "labels": i % 5}


if __name__ == "__main__":
    model = BertForSequenceClassification(BertConfig(hidden_size=768, num_hidden_layers=8, num_labels=5))
    arguments = TrainingArguments(
        "reviews-out", per_device_train_batch_size=64, per_device_eval_batch_size=64, max_steps=24, eval_strategy="steps", eval_steps=12,
        bf16=True, torch_compile=True, report_to=[], save_strategy="no", logging_steps=6, learning_rate=3e-5,
    )
    Trainer(model, arguments, train_dataset=Reviews(4000), eval_dataset=Reviews(128)).train()
