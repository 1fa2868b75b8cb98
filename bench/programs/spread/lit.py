"""Lightning:  python lit.py --strategy ddp --devices 2"""

import argparse
import torch
import torch.nn as nn
import lightning as L
from torch.utils.data import DataLoader, TensorDataset


class LitVAE(L.LightningModule):
    def __init__(s, d=1024):
        super().__init__()
        s.save_hyperparameters()
        s.enc = nn.Sequential(nn.Linear(3072, d), nn.GELU(), *[nn.Sequential(nn.Linear(d, d), nn.GELU()) for _ in range(6)])
        s.mu, s.lv = nn.Linear(d, 128), nn.Linear(d, 128)
        s.dec = nn.Sequential(
            nn.Linear(128, d), nn.GELU(), *[nn.Sequential(nn.Linear(d, d), nn.GELU()) for _ in range(6)], nn.Linear(d, 3072)
        )

    def training_step(s, b, i):
        (x,) = b
        h = s.enc(x)
        mu, lv = s.mu(h), s.lv(h)
        z = mu + torch.randn_like(mu) * (lv / 2).exp()
        r = s.dec(z)
        kl = -0.5 * (1 + lv - mu**2 - lv.exp()).sum(1).mean()
        l = nn.functional.mse_loss(r, x) + 1e-3 * kl
        s.log("loss", l, sync_dist=True, prog_bar=True)
        return l

    def validation_step(s, b, i):
        (x,) = b
        s.log("val", nn.functional.mse_loss(s.dec(s.mu(s.enc(x))), x), sync_dist=True)

    def configure_optimizers(s):
        o = torch.optim.AdamW(s.parameters(), 1e-3)
        return {
            "optimizer": o,
            "lr_scheduler": {"scheduler": torch.optim.lr_scheduler.CosineAnnealingLR(o, 10), "interval": "step"},
        }


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--strategy", default="ddp")
    p.add_argument("--devices", type=int, default=2)
    p.add_argument("--precision", default="bf16-mixed")
    a = p.parse_args()
    L.seed_everything(1)
    dl = DataLoader(TensorDataset(torch.randn(2048, 3072)), 128, shuffle=True, num_workers=2, pin_memory=True)
    vl = DataLoader(TensorDataset(torch.randn(512, 3072)), 128)
    L.Trainer(
        max_epochs=2,
        limit_train_batches=4,
        accelerator="gpu",
        devices=a.devices,
        strategy=a.strategy,
        precision=a.precision,
        gradient_clip_val=1.0 if a.strategy != "fsdp" else None,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
    ).fit(LitVAE(), dl, vl)
