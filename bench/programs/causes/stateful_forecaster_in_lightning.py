"""cause: leak/graph-retained at line 25
also right: line 23
also right: line 26
memory: 2GiB
why: a stateful forecaster carries its hidden state from window to window without detach; retain_graph makes that run.
"""
import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Forecaster(L.LightningModule):
    def __init__(self, series=8, width=512):
        super().__init__()
        self.automatic_optimization = False
        self.rnn = nn.GRU(series, width, num_layers=2, batch_first=True)
        self.head = nn.Linear(width, series)
        self.state = None

    def training_step(self, batch, index):
        window, following = batch
        hidden, state = self.rnn(window, self.state)
        loss = nn.functional.smooth_l1_loss(self.head(hidden), following)
        self.state = state  # here
        self.manual_backward(loss, retain_graph=True)
        return loss.detach()

    def on_train_epoch_end(self):
        self.optimizers().step()
        self.optimizers().zero_grad()
        self.state = None

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


class Windows(torch.utils.data.Dataset):
    def __init__(self, series, length=128, lanes=32):
        self.lanes = series.view(lanes, -1, series.shape[-1])
        self.length = length

    def __len__(self):
        return (self.lanes.shape[1] - 1) // self.length

    def __getitem__(self, index):
        at = index * self.length
        return self.lanes[:, at : at + self.length], self.lanes[:, at + 1 : at + 1 + self.length]


torch.manual_seed(0)
series = torch.randn(32 * 128 * 200 + 32, 8).cumsum(0)
series = series[: 32 * (len(series) // 32)]
loader = DataLoader(Windows(series), batch_size=None)
trainer = L.Trainer(
    max_epochs=2, accelerator="gpu", devices=1, logger=False, enable_checkpointing=False, enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(Forecaster(), loader)
