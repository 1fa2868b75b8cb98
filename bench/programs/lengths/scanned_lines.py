"""Handwriting: lines of every width through convolutions, a bidirectional LSTM and CTC, Lightning's loop; evaluation with wide lines."""
import argparse
import json

import lightning
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

HEIGHT, LETTERS = 64, 90


class Lines(Dataset):
    def __init__(self, count, narrow, wide, seed):
        g = torch.Generator().manual_seed(seed)
        self.seed, self.widths = seed, torch.randint(narrow, wide + 1, (count,), generator=g).tolist()

    def __len__(self):
        return len(self.widths)

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(1000 * self.seed + i)
        width = self.widths[i]
        return torch.rand(1, HEIGHT, width, generator=g), torch.randint(1, LETTERS, (width // 24,), generator=g)


def collate(rows):
    widest = max(x.shape[2] for x, _ in rows)
    pictures = torch.stack([F.pad(x, (0, widest - x.shape[2])) for x, _ in rows])
    return pictures, torch.tensor([x.shape[2] // 4 for x, _ in rows]), torch.cat([y for _, y in rows]), torch.tensor([len(y) for _, y in rows])


class Reader(lightning.LightningModule):
    def __init__(self, width):
        super().__init__()
        def conv(i, o, pool):
            return [nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(), nn.MaxPool2d(pool)]
        self.see = nn.Sequential(*conv(1, width, 2), *conv(width, 2 * width, 2), *conv(2 * width, 4 * width, (2, 1)), *conv(4 * width, 4 * width, (2, 1)))
        self.read = nn.LSTM(4 * width * HEIGHT // 16, 384, 2, bidirectional=True, dropout=0.2)
        self.out = nn.Linear(768, LETTERS)

    def error(self, batch):
        pictures, widths, letters, counts = batch
        x = self.see(pictures)
        x = self.read(x.flatten(1, 2).permute(2, 0, 1))[0]
        return F.ctc_loss(self.out(x).float().log_softmax(-1), letters, widths.cpu(), counts.cpu(), zero_infinity=True)

    def training_step(self, batch, _):
        return self.error(batch)

    def validation_step(self, batch, _):
        self.log("held out", self.error(batch), batch_size=len(batch[0]))

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=120)
    ap.add_argument("--batch-size", type=int, default=24)
    ap.add_argument("--eval-every", type=int, default=40)
    ap.add_argument("--width", type=int, default=48)
    a = ap.parse_args()
    torch.manual_seed(0)
    train = DataLoader(Lines(120 * a.batch_size, 200, 1800, 1), a.batch_size, shuffle=True, collate_fn=collate)
    valid = DataLoader(Lines(48, 1000, 2600, 2), 16, collate_fn=collate)
    trainer = lightning.Trainer(max_steps=a.steps, val_check_interval=a.eval_every, precision="16-mixed", logger=False, enable_checkpointing=False,
                                enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0, accelerator="gpu", devices=1)
    trainer.fit(Reader(a.width), train, valid)
    print("MEASURED", json.dumps({"steps": trainer.global_step, "peak_allocated": torch.cuda.max_memory_allocated(), "peak_reserved": torch.cuda.max_memory_reserved()}))
