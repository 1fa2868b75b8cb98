"""Lightning: a wide ResNet on pictures of 224, with a validation, OneCycle and a metric."""

import lightning as L
import torch
import torch.nn.functional as F
import torchvision
from torch.utils.data import DataLoader, Dataset


class Fake(Dataset):
    def __init__(self, n):
        self.n, self.pool = n, torch.rand(32, 3, 224, 224)

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return self.pool[i % 32], i % 100


class Classifier(L.LightningModule):
    def __init__(self, lr=0.1):
        super().__init__()
        self.save_hyperparameters()
        self.net = torchvision.models.wide_resnet50_2(num_classes=100)

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = F.cross_entropy(self(x), y, label_smoothing=0.1)
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        logits = self(x)
        self.log("val_acc", (logits.argmax(1) == y).float().mean())
        self.log("val_loss", F.cross_entropy(logits, y))

    def configure_optimizers(self):
        opt = torch.optim.SGD(self.parameters(), lr=self.hparams.lr, momentum=0.9, weight_decay=1e-4, nesterov=True)
        sched = torch.optim.lr_scheduler.OneCycleLR(opt, self.hparams.lr, total_steps=self.trainer.estimated_stepping_batches)
        return {"optimizer": opt, "lr_scheduler": {"scheduler": sched, "interval": "step"}}


if __name__ == "__main__":
    L.seed_everything(7)
    trainer = L.Trainer(
        max_epochs=2, accelerator="gpu", devices=1, gradient_clip_val=1.0, limit_train_batches=12, limit_val_batches=2,
        enable_progress_bar=False, enable_model_summary=False, logger=False, enable_checkpointing=False,
    )
    trainer.fit(Classifier(), DataLoader(Fake(2000), batch_size=64, shuffle=True), DataLoader(Fake(200), batch_size=100))
