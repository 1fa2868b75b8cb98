"""cause: leak/results-kept at line 22
also right: leak/graph-retained
also right: line 20
memory: 2GiB
why: the module keeps what each training step made, for the end of the epoch.
"""
import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512))
        self.outputs = []

    def training_step(self, batch, at):
        out = self.net(batch[0])
        loss = (out - batch[0]).square().mean()
        self.outputs.append(out)  # here
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())


data = DataLoader(TensorDataset(torch.randn(65536, 512)), batch_size=4096)
trainer = L.Trainer(max_epochs=20, accelerator="gpu", devices=1, logger=False, enable_checkpointing=False, enable_progress_bar=False)
trainer.fit(Net(), data)
