"""HF Trainer on images: a Swin of its own configuration, metrics, evaluation in each epoch, the best one kept, label smoothing."""
import tempfile

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import SwinConfig, SwinForImageClassification, Trainer, TrainingArguments


class Pictures(Dataset):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        made = torch.Generator().manual_seed(i)
        return {"pixel_values": torch.rand(3, 224, 224, generator=made), "labels": i % 20}


def accuracy(said):
    return {"accuracy": float((np.argmax(said.predictions, -1) == said.label_ids).mean())}


if __name__ == "__main__":
    model = SwinForImageClassification(SwinConfig(num_labels=20, embed_dim=96, depths=[2, 2, 6, 2], num_heads=[3, 6, 12, 24]))
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, per_device_train_batch_size=48, per_device_eval_batch_size=96, num_train_epochs=2, learning_rate=5e-5, weight_decay=0.05,
            label_smoothing_factor=0.1, eval_strategy="epoch", save_strategy="epoch", load_best_model_at_end=True, metric_for_best_model="accuracy",
            dataloader_num_workers=2, logging_steps=5, report_to=[], save_total_limit=1,
        )  # fmt: skip
        trainer = Trainer(model, arguments, train_dataset=Pictures(960), eval_dataset=Pictures(192), compute_metrics=accuracy)
        trainer.train()
        print(trainer.evaluate())
