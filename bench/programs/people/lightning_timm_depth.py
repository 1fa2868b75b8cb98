"""Depth from one picture in Lightning: a ConvNeXt of timm gives features, a pyramid decodes them, scale-invariant loss, two learning rates."""
import lightning as L
import timm
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset
from torchmetrics import MeanAbsoluteError, MetricCollection
from torchmetrics.regression import MeanSquaredError


class Rooms(Dataset):
    def __init__(self, n, size=(384, 512)):
        self.n, self.size = n, size

    def __len__(self):
        return self.n

    def __getitem__(self, idx):
        g = torch.Generator().manual_seed(idx)
        image = torch.rand(3, *self.size, generator=g)
        depth = 0.5 + 9 * F.interpolate(torch.rand(1, 1, 6, 8, generator=g), self.size, mode="bicubic")[0].clamp(0, 1)
        valid = torch.rand(1, *self.size, generator=g) > 0.2
        return {"image": image, "depth": depth, "valid": valid}


class Fusion(nn.Module):
    def __init__(self, ch):
        super().__init__()
        self.res1 = nn.Sequential(nn.ReLU(), nn.Conv2d(ch, ch, 3, padding=1), nn.BatchNorm2d(ch), nn.ReLU(), nn.Conv2d(ch, ch, 3, padding=1), nn.BatchNorm2d(ch))
        self.res2 = nn.Sequential(nn.ReLU(), nn.Conv2d(ch, ch, 3, padding=1), nn.BatchNorm2d(ch), nn.ReLU(), nn.Conv2d(ch, ch, 3, padding=1), nn.BatchNorm2d(ch))

    def forward(self, x, skip=None):
        if skip is not None:
            x = x + skip + self.res1(skip)
        x = x + self.res2(x)
        return F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True)


class DepthModule(L.LightningModule):
    def __init__(self, backbone="convnext_tiny", width=256, lr=1e-4, max_depth=10.0):
        super().__init__()
        self.save_hyperparameters()
        self.backbone = timm.create_model(backbone, pretrained=False, features_only=True, drop_path_rate=0.1)
        self.project = nn.ModuleList(nn.Conv2d(c, width, 3, padding=1, bias=False) for c in self.backbone.feature_info.channels())
        self.fusions = nn.ModuleList(Fusion(width) for _ in self.project)
        self.head = nn.Sequential(
            nn.Conv2d(width, width // 2, 3, padding=1), nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True),
            nn.Conv2d(width // 2, 32, 3, padding=1), nn.ReLU(True), nn.Conv2d(32, 1, 1), nn.Sigmoid(),
        )
        self.metrics = MetricCollection({"mae": MeanAbsoluteError(), "rmse": MeanSquaredError(squared=False)}, prefix="val_")

    def forward(self, image):
        features = [p(f) for p, f in zip(self.project, self.backbone(image))]
        x = self.fusions[-1](features[-1])
        for fusion, feature in zip(reversed(self.fusions[:-1]), reversed(features[:-1])):
            x = fusion(x, feature)
        return self.head(x) * self.hparams.max_depth

    def silog(self, prediction, batch):
        mask = batch["valid"]
        d = torch.log(prediction.float()[mask] + 1e-3) - torch.log(batch["depth"][mask] + 1e-3)
        return torch.sqrt((d**2).mean() - 0.85 * d.mean() ** 2 + 1e-6)

    def training_step(self, batch, batch_idx):
        loss = self.silog(self(batch["image"]), batch)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        prediction = self(batch["image"]).float()
        self.log("val_loss", self.silog(prediction, batch))
        self.metrics.update(prediction[batch["valid"]], batch["depth"][batch["valid"]])

    def on_validation_epoch_end(self):
        scores = self.metrics.compute()
        self.log_dict(scores)
        print({k: round(v.item(), 4) for k, v in scores.items()})
        self.metrics.reset()

    def configure_optimizers(self):
        decoder = [p for n, p in self.named_parameters() if not n.startswith("backbone")]
        optimizer = torch.optim.AdamW([{"params": self.backbone.parameters(), "lr": self.hparams.lr / 10}, {"params": decoder, "lr": self.hparams.lr}], weight_decay=0.01)
        scheduler = torch.optim.lr_scheduler.PolynomialLR(optimizer, total_iters=self.trainer.estimated_stepping_batches, power=0.9)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


def main():
    L.seed_everything(1)
    train = DataLoader(Rooms(12 * 16), batch_size=12, shuffle=True, num_workers=6, persistent_workers=True, drop_last=True)
    val = DataLoader(Rooms(36), batch_size=12, num_workers=2)
    trainer = L.Trainer(
        max_epochs=2, accelerator="gpu", devices=1, precision="16-mixed", gradient_clip_val=1.0, log_every_n_steps=4,
        logger=False, enable_checkpointing=False, enable_progress_bar=False,
    )
    trainer.fit(DepthModule(), train, val)


if __name__ == "__main__":
    main()
