"""A ViT in Lightning: bf16-mixed, mixup, cosine schedule, top-1 and top-5 of torchmetrics in validation."""
import lightning as L
import torch
import torch.nn.functional as F
import torchmetrics
import torchvision
from torch.utils.data import DataLoader, TensorDataset


class Vit(L.LightningModule):
    def __init__(self, lr=1e-3, classes=1000):
        super().__init__()
        self.save_hyperparameters()
        self.net = torchvision.models.vit_b_16(weights=None)
        self.top1 = torchmetrics.Accuracy("multiclass", num_classes=classes)
        self.top5 = torchmetrics.Accuracy("multiclass", num_classes=classes, top_k=5)

    def training_step(self, batch, _):
        x, y = batch
        lam, order = 0.7, torch.randperm(len(x), device=x.device)
        out = self.net(lam * x + (1 - lam) * x[order])
        loss = lam * F.cross_entropy(out, y, label_smoothing=0.1) + (1 - lam) * F.cross_entropy(out, y[order], label_smoothing=0.1)
        self.log("loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, _):
        x, y = batch
        out = self.net(x)
        self.top1(out, y)
        self.top5(out, y)
        self.log_dict({"top1": self.top1, "top5": self.top5}, on_epoch=True)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), self.hparams.lr, weight_decay=0.05)
        return {"optimizer": optimizer, "lr_scheduler": torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)}


class Data(L.LightningDataModule):
    def __init__(self, batch=128):
        super().__init__()
        self.batch = batch

    def loader(self, n):
        return DataLoader(TensorDataset(torch.randn(n, 3, 224, 224), torch.randint(0, 1000, (n,))), self.batch, num_workers=0)

    def train_dataloader(self):
        return self.loader(12 * self.batch)

    def val_dataloader(self):
        return self.loader(2 * self.batch)


if __name__ == "__main__":
    L.seed_everything(0)
    trainer = L.Trainer(max_epochs=2, precision="bf16-mixed", accelerator="gpu", devices=1, logger=False, enable_checkpointing=False, gradient_clip_val=1.0)
    trainer.fit(Vit(), datamodule=Data())
