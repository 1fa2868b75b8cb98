"""Lightning: only the head goes to the optimizer, but the backbone is not frozen and keeps all its activations."""
import lightning as L
import torch
import torch.nn.functional as F
import torchvision
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Pictures(Dataset):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return torch.rand(3, 224, 224, generator=torch.Generator().manual_seed(i)), i % 37


class Probe(L.LightningModule):
    def __init__(self, classes=37):
        super().__init__()
        backbone = torchvision.models.resnet50(weights=None)
        self.features = nn.Sequential(*list(backbone.children())[:-1])
        self.head = nn.Linear(2048, classes)

    def forward(self, x):
        return self.head(self.features(x).flatten(1))

    def training_step(self, batch, index):
        x, y = batch
        loss = F.cross_entropy(self(x), y)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, index):
        x, y = batch
        self.log("val_acc", (self(x).argmax(1) == y).float().mean())

    def configure_optimizers(self):
        return torch.optim.Adam(self.head.parameters(), lr=1e-3)


trainer = L.Trainer(max_epochs=3, accelerator="gpu", devices=1, logger=False, enable_checkpointing=False, enable_progress_bar=False)
trainer.fit(Probe(), DataLoader(Pictures(960), batch_size=96), DataLoader(Pictures(192), batch_size=96))
