"""Lightning: goes on from lit/last.ckpt, keeps the best two with ModelCheckpoint, logs a csv, and imports a module of the project."""
import os

import lightning as L
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from lit_model import Net
from torch.utils.data import DataLoader, TensorDataset

run = int(open("count.txt").read()) + 1
open("count.txt", "w").write(f"{run}\n")
print("RUN", run, flush=True)

L.seed_everything(1)
data = DataLoader(TensorDataset(torch.randn(64, 256)), 16)
keep = ModelCheckpoint(
    "lit", monitor="loss", save_top_k=2, save_last=True, filename="{step}", enable_version_counter=False,
)
trainer = L.Trainer(
    accelerator="gpu", devices=1, max_epochs=5, callbacks=[keep], logger=CSVLogger("lit_logs", name="csv"),
    log_every_n_steps=1, enable_progress_bar=False, enable_model_summary=False,
)
net = Net()
trainer.fit(net, data, ckpt_path="last")

state = torch.load("lit/last.ckpt", weights_only=False)
print("ended at step", trainer.global_step, "of epoch", trainer.current_epoch)
assert trainer.global_step == 20 and trainer.current_epoch == 5  # 8 steps and 2 epochs were done before
assert 8 < state["global_step"] <= 20, state["global_step"]  # the last that was among the best
assert state["state_dict"].keys() == net.state_dict().keys()
assert os.path.exists(keep.best_model_path)
assert os.path.exists("lit_logs/csv/version_0/metrics.csv") and not os.path.exists("lit_logs/csv/version_1")
print("READ BACK OK")
