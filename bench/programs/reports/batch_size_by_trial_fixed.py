"""A Trainer with a batch size that fits."""
import torch
from torch.utils.data import Dataset
from transformers import Trainer, TrainingArguments, ViTConfig, ViTForImageClassification


class Leaves(Dataset):
    def __init__(self, n, size=384):
        self.n = n
        self.picture = torch.zeros(3, size, size)

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return {"pixel_values": self.picture, "labels": i % 30}


def main():
    config = ViTConfig(
        hidden_size=384,
        num_hidden_layers=12,
        num_attention_heads=6,
        intermediate_size=1536,
        image_size=384,
        num_labels=30,
    )
    model = ViTForImageClassification(config)
    arguments = TrainingArguments(
        output_dir="leaves",
        per_device_train_batch_size=32,
        num_train_epochs=2,
        max_steps=40,
        learning_rate=3e-4,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        logging_steps=20,
    )
    trainer = Trainer(model=model, args=arguments, train_dataset=Leaves(20000))
    trainer.train()


if __name__ == "__main__":
    main()
