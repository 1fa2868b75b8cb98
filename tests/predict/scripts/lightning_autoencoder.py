
import lightning as L, torch, torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split
class LitAutoEncoder(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.save_hyperparameters()
        self.encoder = nn.Sequential(nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 64))
        self.decoder = nn.Sequential(nn.Linear(64, 1024), nn.ReLU(), nn.Linear(1024, 784))
    def training_step(self, batch, i):
        x, _ = batch; x = x.view(x.size(0), -1)
        loss = F.mse_loss(self.decoder(self.encoder(x)), x)
        self.log("train_loss", loss, prog_bar=True)
        return loss
    def validation_step(self, batch, i):
        x, _ = batch; x = x.view(x.size(0), -1)
        self.log("val_loss", F.mse_loss(self.decoder(self.encoder(x)), x), prog_bar=True)
    def configure_optimizers(self):
        o = torch.optim.AdamW(self.parameters(), lr=1e-3)
        return {"optimizer": o, "lr_scheduler": torch.optim.lr_scheduler.CosineAnnealingLR(o, 10)}
d = TensorDataset(torch.randn(5000, 1, 28, 28), torch.randint(0, 10, (5000,)))
tr, va = random_split(d, [4500, 500])
trainer = L.Trainer(max_epochs=3, precision="16-mixed", gradient_clip_val=1.0, accumulate_grad_batches=2, log_every_n_steps=5)
trainer.fit(LitAutoEncoder(), DataLoader(tr, batch_size=128, num_workers=2, shuffle=True), DataLoader(va, batch_size=256))
