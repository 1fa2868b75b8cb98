"""With a frozen teacher: a small network learns from a large one, both in one LightningModule."""

import argparse

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def network(width, depth, classes=100):
    layers = [nn.Conv2d(3, width, 4, 4)]
    for _ in range(depth):
        layers += [nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.GELU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes))


class Distillation(lightning.LightningModule):
    def __init__(self, args):
        super().__init__()
        self.student = network(args.student_width, 8)
        self.teacher = network(args.teacher_width, 12)
        self.teacher.eval().requires_grad_(False)
        self.lr, self.temperature = args.lr, args.temperature

    def training_step(self, batch, number):
        pictures, labels = batch
        scores = self.student(pictures)
        with torch.no_grad():
            wanted = self.teacher(pictures)
        soft = nn.functional.kl_div(
            (scores / self.temperature).log_softmax(-1),
            (wanted / self.temperature).softmax(-1),
            reduction="batchmean",
        )
        loss = soft + nn.functional.cross_entropy(scores, labels)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.student.parameters(), lr=self.lr)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--student-width", type=int, default=64)
    parser.add_argument("--teacher-width", type=int, default=512)
    parser.add_argument("--batch-size", type=int, default=96)
    parser.add_argument("--temperature", type=float, default=4.0)
    parser.add_argument("--lr", type=float, default=1e-3)
    args = parser.parse_args()
    data = TensorDataset(torch.rand(384, 3, 160, 160), torch.randint(100, (384,)))
    trainer = lightning.Trainer(
        max_epochs=20, accelerator="gpu", devices=1, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )
    trainer.fit(Distillation(args), DataLoader(data, args.batch_size, shuffle=True))


if __name__ == "__main__":
    main()
