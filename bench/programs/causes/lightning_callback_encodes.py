"""cause: leak/eval-without-no-grad at line 22
also right: line 39
also right: leak/graph-retained
also right: leak/results-kept
memory: 2GiB
why: a callback at the end of each training epoch encodes a probe set; there Lightning has not switched gradients off.
"""
import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Probe(L.Callback):
    def __init__(self, images):
        self.images = images

    def on_train_epoch_end(self, trainer, module):
        module.eval()
        codes = []
        for some in self.images.split(64):
            codes.append(module.encode(some.to(module.device)))  # here
        codes = torch.cat(codes)
        print("spread", float(codes.std()))
        module.train()


class AutoEncoder(L.LightningModule):
    def __init__(self):
        super().__init__()
        widths = [3, 32, 64, 128]
        self.down = nn.Sequential(*[it for a, b in zip(widths, widths[1:]) for it in (nn.Conv2d(a, b, 4, 2, 1), nn.BatchNorm2d(b), nn.GELU())])
        self.up = nn.Sequential(
            nn.ConvTranspose2d(128, 64, 4, 2, 1), nn.GELU(), nn.ConvTranspose2d(64, 32, 4, 2, 1), nn.GELU(),
            nn.ConvTranspose2d(32, 3, 4, 2, 1),
        )

    def encode(self, images):
        return self.down(images).mean((2, 3))

    def training_step(self, batch, at):
        return (self.up(self.down(batch[0])) - batch[0]).square().mean()

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


data = TensorDataset(torch.randn(192, 3, 128, 128))
trainer = L.Trainer(
    max_epochs=2, accelerator="gpu", devices=1, logger=False, enable_checkpointing=False, enable_progress_bar=False,
    enable_model_summary=False, callbacks=[Probe(torch.randn(1600, 3, 128, 128))],
)
trainer.fit(AutoEncoder(), DataLoader(data, batch_size=16))
