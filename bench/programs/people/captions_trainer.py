"""Captions of pictures: a frozen ViT, a GPT-2 that looks at it, transformers' Trainer with evaluation and saved checkpoints."""
import torch
from transformers import (
    GPT2Config, Trainer, TrainingArguments, VisionEncoderDecoderConfig, VisionEncoderDecoderModel, ViTConfig, default_data_collator,
)


class Captions(torch.utils.data.Dataset):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        labels = torch.randint(0, 50257, (96,), generator=g)
        labels[60 + i % 36 :] = -100
        return {"pixel_values": torch.randn(3, 224, 224, generator=g), "labels": labels}


def compute_metrics(prediction):
    logits = prediction.predictions[0] if isinstance(prediction.predictions, tuple) else prediction.predictions
    return {"accuracy": float((logits == prediction.label_ids).mean())}


def smaller(logits, labels):
    return (logits[0] if isinstance(logits, tuple) else logits).argmax(-1)


config = VisionEncoderDecoderConfig.from_encoder_decoder_configs(
    ViTConfig(), GPT2Config(add_cross_attention=True, is_decoder=True, n_positions=128)
)
model = VisionEncoderDecoderModel(config)
model.config.decoder_start_token_id = model.config.pad_token_id = 50256
for p in model.encoder.parameters():
    p.requires_grad = False
args = TrainingArguments(
    output_dir="captions", per_device_train_batch_size=64, per_device_eval_batch_size=32, num_train_epochs=1, max_steps=16,
    eval_strategy="steps", eval_steps=8, save_steps=8, logging_steps=4, learning_rate=5e-5, warmup_steps=4, report_to="none",
    dataloader_num_workers=2, remove_unused_columns=False,
)
trainer = Trainer(
    model=model, args=args, train_dataset=Captions(2048), eval_dataset=Captions(64), data_collator=default_data_collator,
    compute_metrics=compute_metrics, preprocess_logits_for_metrics=smaller,
)
trainer.train()
