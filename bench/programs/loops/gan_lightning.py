"""A GAN as a Lightning module with manual optimization."""

import lightning as L
import torch
from torch import nn

SIZE, BATCH, WIDTH, LATENT, STEPS = 64, 1024, 128, 128, 30


def up(i, o):
    return nn.Sequential(nn.ConvTranspose2d(i, o, 4, 2, 1), nn.BatchNorm2d(o), nn.ReLU(True))


def down(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 4, 2, 1), nn.LeakyReLU(0.2))


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.start = nn.ConvTranspose2d(LATENT, WIDTH * 8, SIZE // 16)
        self.body = nn.Sequential(
            up(WIDTH * 8, WIDTH * 4), up(WIDTH * 4, WIDTH * 2), up(WIDTH * 2, WIDTH), nn.ConvTranspose2d(WIDTH, 3, 4, 2, 1)
        )

    def forward(self, z):
        return torch.tanh(self.body(self.start(z[:, :, None, None])))


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            down(3, WIDTH), down(WIDTH, WIDTH * 2), down(WIDTH * 2, WIDTH * 4), down(WIDTH * 4, WIDTH * 8)
        )
        self.head = nn.Linear(WIDTH * 8 * (SIZE // 16) ** 2, 1)

    def forward(self, x):
        return self.head(self.body(x).flatten(1))


class GAN(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.gen, self.disc = Generator(), Discriminator()
        self.bce = nn.BCEWithLogitsLoss()

    def training_step(self, batch, index):
        real, = batch
        opt_g, opt_d = self.optimizers()
        ones = torch.ones(len(real), 1, device=self.device)
        fake = self.gen(torch.randn(len(real), LATENT, device=self.device))

        self.toggle_optimizer(opt_g)
        g_loss = self.bce(self.disc(fake), ones)
        opt_g.zero_grad()
        self.manual_backward(g_loss)
        opt_g.step()
        self.untoggle_optimizer(opt_g)

        self.toggle_optimizer(opt_d)
        d_loss = (self.bce(self.disc(real), ones) + self.bce(self.disc(fake.detach()), torch.zeros_like(ones))) / 2
        opt_d.zero_grad()
        self.manual_backward(d_loss)
        opt_d.step()
        self.untoggle_optimizer(opt_d)
        self.log_dict({"g": g_loss, "d": d_loss}, prog_bar=False)

    def configure_optimizers(self):
        make = lambda it: torch.optim.Adam(it.parameters(), lr=2e-4, betas=(0.5, 0.999))  # noqa: E731
        return [make(self.gen), make(self.disc)], []


def main():
    L.seed_everything(0)
    pictures = torch.utils.data.TensorDataset(torch.rand(BATCH * 4, 3, SIZE, SIZE))
    loader = torch.utils.data.DataLoader(pictures, batch_size=BATCH, shuffle=True)
    trainer = L.Trainer(
        max_steps=STEPS * 2, accelerator="auto", devices=1, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )
    trainer.fit(GAN(), loader)


if __name__ == "__main__":
    main()
