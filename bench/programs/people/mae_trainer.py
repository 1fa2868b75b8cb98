"""Masked autoencoder pretraining with transformers' Trainer: ViT-MAE from a config, a learning rate by batch, a collator that flips."""
import tempfile
from dataclasses import dataclass, field

import torch
from torchvision.transforms import v2
from transformers import HfArgumentParser, Trainer, TrainingArguments, ViTMAEConfig, ViTMAEForPreTraining, set_seed


@dataclass
class ModelArguments:
    mask_ratio: float = field(default=0.75)
    norm_pix_loss: bool = field(default=True)
    image_size: int = field(default=224)


@dataclass
class CustomTrainingArguments(TrainingArguments):
    base_learning_rate: float = field(default=1.5e-4)


class Pictures(torch.utils.data.Dataset):
    def __init__(self, n, size):
        self.pictures = torch.randint(0, 256, (n, 3, size + 32, size + 32), dtype=torch.uint8)
        self.transform = v2.Compose([
            v2.RandomResizedCrop(size, scale=(0.2, 1.0), antialias=True),
            v2.RandomHorizontalFlip(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
        ])

    def __len__(self):
        return len(self.pictures)

    def __getitem__(self, i):
        return {"pixel_values": self.transform(self.pictures[i])}


def collate_fn(examples):
    return {"pixel_values": torch.stack([e["pixel_values"] for e in examples])}


class MAETrainer(Trainer):
    def create_optimizer(self, *args, **kwargs):
        if self.optimizer is None:
            decay = [p for p in self.model.parameters() if p.requires_grad and p.ndim > 1]
            rest = [p for p in self.model.parameters() if p.requires_grad and p.ndim <= 1]
            self.optimizer = torch.optim.AdamW(
                [{"params": decay, "weight_decay": 0.05}, {"params": rest, "weight_decay": 0.0}], lr=self.args.learning_rate, betas=(0.9, 0.95)
            )
        return self.optimizer


def main():
    parser = HfArgumentParser((ModelArguments, CustomTrainingArguments))
    model_args, training_args = parser.parse_args_into_dataclasses([
        "--output_dir", tempfile.mkdtemp(), "--per_device_train_batch_size", "192", "--per_device_eval_batch_size", "64",
        "--max_steps", "24", "--gradient_accumulation_steps", "2", "--lr_scheduler_type", "cosine", "--warmup_steps", "3", "--bf16",
        "--logging_steps", "4", "--eval_strategy", "steps", "--eval_steps", "12", "--save_strategy", "no", "--report_to", "none",
        "--remove_unused_columns", "False", "--label_names", "pixel_values", "--dataloader_num_workers", "8", "--disable_tqdm", "True",
    ])
    set_seed(training_args.seed)
    config = ViTMAEConfig(image_size=model_args.image_size, mask_ratio=model_args.mask_ratio, norm_pix_loss=model_args.norm_pix_loss)
    model = ViTMAEForPreTraining(config)
    total = training_args.per_device_train_batch_size * training_args.gradient_accumulation_steps
    training_args.learning_rate = training_args.base_learning_rate * total / 256
    trainer = MAETrainer(
        model=model, args=training_args, train_dataset=Pictures(1536, model_args.image_size),
        eval_dataset=Pictures(128, model_args.image_size), data_collator=collate_fn,
    )
    result = trainer.train()
    trainer.log_metrics("train", result.metrics)
    trainer.log_metrics("eval", trainer.evaluate())


if __name__ == "__main__":
    main()
