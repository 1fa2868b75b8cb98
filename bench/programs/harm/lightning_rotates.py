"""Lightning: resumes from lit/last.ckpt into the same folder, the best two replace what was there, every epoch's file is kept beside, then a second fit resumes the first."""
import glob
import os

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from lit_model import Net
from torch.utils.data import DataLoader, TensorDataset

run = int(open("count.txt").read()) + 1
open("count.txt", "w").write(f"{run}\n")
print("RUN", run, flush=True)


class Average(Callback):
    def on_train_epoch_end(self, trainer, module):
        open("average.tmp", "wb").write(b"%d" % trainer.current_epoch)
        os.replace("average.tmp", "best.txt")

    def on_save_checkpoint(self, trainer, module, checkpoint):
        checkpoint["average"] = torch.zeros(3)


def fit(epochs, resume):
    best = ModelCheckpoint("lit", monitor="loss", save_top_k=2, save_last=True, filename="{step}", enable_version_counter=False)
    every = ModelCheckpoint("lit_every", save_top_k=-1, every_n_epochs=1, filename="{epoch}")
    trainer = L.Trainer(
        accelerator="gpu", devices=1, max_epochs=epochs, callbacks=[best, every, Average()], logger=CSVLogger(".", name="lit_run"),
        log_every_n_steps=1, enable_progress_bar=False, enable_model_summary=False,
    )
    trainer.fit(Net(), DataLoader(TensorDataset(torch.randn(64, 256)), 16), ckpt_path=resume, weights_only=False)
    return trainer, best


seen = {it: os.stat(it).st_ino for it in glob.glob("lit/*.ckpt")}
assert len(seen) == 3, seen
trainer, best = fit(4, "lit/last.ckpt")
assert trainer.global_step == 16, trainer.global_step
assert best.last_model_path.endswith("last.ckpt") and 8 < torch.load("lit/last.ckpt", weights_only=False)["global_step"] <= 16
trainer, best = fit(6, "last")
assert trainer.global_step == 24, trainer.global_step
last = torch.load("lit/last.ckpt", weights_only=False)
assert 8 < last["global_step"] <= 24 and last["average"].numel() == 3
assert sorted(os.listdir("lit_every"))[-1] == "epoch=5.ckpt", os.listdir("lit_every")
assert len(glob.glob("lit/*.ckpt")) >= 3 and open("best.txt").read() == "5"
assert sorted(os.listdir("lit_run")) == ["version_0", "version_1"]
print("READ BACK OK")
