"""Trainer with compute_metrics of a model whose config returns its hidden states: the evaluation gathers all of them."""
import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments


class Texts(Dataset):
    def __init__(self, n, length=256):
        self.n, self.length = n, length

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        return {"input_ids": torch.randint(5, 30000, (self.length,), generator=g), "attention_mask": torch.ones(self.length, dtype=torch.long), "labels": i % 3}


def compute_metrics(prediction):
    logits = prediction.predictions[0] if isinstance(prediction.predictions, tuple) else prediction.predictions
    return {"accuracy": float((np.argmax(logits, -1) == prediction.label_ids).mean())}


config = BertConfig(hidden_size=512, num_hidden_layers=8, num_attention_heads=8, intermediate_size=2048, num_labels=3)
model = BertForSequenceClassification(config)
arguments = TrainingArguments(
    output_dir="out", per_device_train_batch_size=16, per_device_eval_batch_size=32, max_steps=40, eval_strategy="steps", eval_steps=20, report_to=[], save_strategy="no", disable_tqdm=True
)
trainer = Trainer(model=model, args=arguments, train_dataset=Texts(4000), eval_dataset=Texts(3000), compute_metrics=compute_metrics)
trainer.train()
