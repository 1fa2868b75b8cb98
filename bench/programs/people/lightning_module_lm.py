"""Lightning with a DataModule: a transformer encoder of torch's own on characters, cosine schedule, clipping, a validation."""

import math

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Text(L.LightningDataModule):
    def __init__(self, batch_size):
        super().__init__()
        self.batch_size = batch_size

    def setup(self, stage):
        g = torch.Generator().manual_seed(3)
        self.rows = torch.randint(8000, (3000, 513), generator=g)

    def train_dataloader(self):
        return DataLoader(TensorDataset(self.rows[:2800]), batch_size=self.batch_size, shuffle=True, drop_last=True)

    def val_dataloader(self):
        return DataLoader(TensorDataset(self.rows[2800:]), batch_size=self.batch_size * 2)


class LM(L.LightningModule):
    def __init__(self, width=768, depth=10, vocabulary=8000):
        super().__init__()
        self.embed, self.place = nn.Embedding(vocabulary, width), nn.Parameter(torch.zeros(512, width))
        layer = nn.TransformerEncoderLayer(width, 12, 4 * width, dropout=0.1, batch_first=True, norm_first=True, activation="gelu")
        self.body, self.head = nn.TransformerEncoder(layer, depth), nn.Linear(width, vocabulary)

    def loss(self, batch):
        (rows,) = batch
        mask = nn.Transformer.generate_square_subsequent_mask(512, device=rows.device)
        x = self.body(self.embed(rows[:, :-1]) * math.sqrt(768) + self.place, mask=mask, is_causal=True)
        return nn.functional.cross_entropy(self.head(x).flatten(0, 1), rows[:, 1:].flatten())

    def training_step(self, batch, index):
        loss = self.loss(batch)
        self.log("train", loss)
        return loss

    def validation_step(self, batch, index):
        self.log("val", self.loss(batch))

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=3e-4, betas=(0.9, 0.95))
        return [optimizer], [torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)]


if __name__ == "__main__":
    trainer = L.Trainer(
        max_epochs=1, gradient_clip_val=1.0, limit_train_batches=20, logger=False, enable_checkpointing=False, enable_progress_bar=False
    )
    trainer.fit(LM(), datamodule=Text(batch_size=24))
