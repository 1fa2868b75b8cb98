"""Trainer that hands the pictures to compute_metrics as well: the evaluation collects them on the GPU (transformers#16461)."""
import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import Trainer, TrainingArguments, ViTConfig, ViTForImageClassification


class Pictures(Dataset):
    def __init__(self, n, size=384):
        self.n = n
        self.picture = torch.zeros(3, size, size)

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return {"pixel_values": self.picture, "labels": i % 10}


def compute_metrics(evaluated):
    predicted = np.argmax(evaluated.predictions, -1)
    right = predicted == evaluated.label_ids
    return {"accuracy": float(right.mean())}


config = ViTConfig(hidden_size=192, num_hidden_layers=6, num_attention_heads=3, intermediate_size=768, image_size=384, num_labels=10)
model = ViTForImageClassification(config)
arguments = TrainingArguments(
    output_dir="out",
    per_device_train_batch_size=16,
    per_device_eval_batch_size=64,
    max_steps=20,
    eval_strategy="steps",
    eval_steps=10,
    save_strategy="no",
    report_to=[],
    disable_tqdm=True,
)
trainer = Trainer(
    model=model,
    args=arguments,
    train_dataset=Pictures(20000),
    eval_dataset=Pictures(4096),
    compute_metrics=compute_metrics,
)
trainer.train()
