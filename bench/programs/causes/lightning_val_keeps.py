"""cause: leak/results-kept at line 23
also right: growth/per-step
memory: 2GiB
why: predictions of each validation batch stay on the device until the epoch's end.
"""
import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 21, 3, padding=1))
        self.kept = []

    def training_step(self, batch, at):
        return self.net(batch[0]).square().mean()

    def validation_step(self, batch, at):
        out = self.net(batch[0])
        self.kept.append(out.softmax(1))  # here

    def on_validation_epoch_end(self):
        self.kept.clear()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


images = TensorDataset(torch.randn(1600, 3, 128, 128))
trainer = L.Trainer(
    max_epochs=1, accelerator="gpu", devices=1, logger=False, enable_checkpointing=False, enable_progress_bar=False,
    num_sanity_val_steps=0, limit_train_batches=2,
)
trainer.fit(Net(), DataLoader(images, batch_size=8), DataLoader(images, batch_size=8))
