"""Lightning: a fresh training with validation, top three by val_loss, a checkpoint every two steps, csv log, and trainer.save_checkpoint."""
import csv
import glob
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

data = TensorDataset(torch.randn(96, 512))
best = ModelCheckpoint("lit_best", monitor="val_loss", save_top_k=3, filename="{epoch}-{val_loss:.2f}")
often = ModelCheckpoint("lit_often", every_n_train_steps=2, save_top_k=1, save_last="link", filename="{step}")
trainer = L.Trainer(
    accelerator="gpu", devices=1, max_epochs=4, callbacks=[best, often], logger=CSVLogger(".", name="lit_run"),
    log_every_n_steps=1, enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=1,
)
net = Net(512)
trainer.fit(net, DataLoader(data, 32), DataLoader(data, 48))
trainer.save_checkpoint("lit/last.ckpt")
for old in glob.glob("lit/step*.ckpt"):
    os.remove(old)

assert trainer.global_step == 12
assert trainer.logger.version == 0, "somebody trained here before"
assert torch.load("lit/last.ckpt", weights_only=False)["global_step"] == 12
assert os.listdir("lit") == ["last.ckpt"]
assert len(glob.glob("lit_best/*.ckpt")) == 3, os.listdir("lit_best")
assert os.path.lexists("lit_often/last.ckpt") and os.path.exists("lit_often/last.ckpt")
assert Net.load_from_checkpoint("lit/last.ckpt", width=512, weights_only=False).body[0].weight.shape == (512, 512)
rows = list(csv.DictReader(open("lit_run/version_0/metrics.csv")))
assert max(int(it["step"]) for it in rows) == 11
print("READ BACK OK")
