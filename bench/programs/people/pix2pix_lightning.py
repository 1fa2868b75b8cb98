"""pix2pix in Lightning with manual optimization: two optimizers, one step of each for a batch, a validation that logs pictures."""
import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def down(i, o, norm=True):
    return nn.Sequential(nn.Conv2d(i, o, 4, 2, 1, bias=False), nn.InstanceNorm2d(o, affine=True) if norm else nn.Identity(), nn.LeakyReLU(0.2))


def up(i, o):
    return nn.Sequential(nn.ConvTranspose2d(i, o, 4, 2, 1, bias=False), nn.InstanceNorm2d(o, affine=True), nn.ReLU())


class Generator(nn.Module):
    def __init__(self, c=64):
        super().__init__()
        sizes = [c, 2 * c, 4 * c, 8 * c, 8 * c, 8 * c]
        self.downs = nn.ModuleList(down(i, o, i != 3) for i, o in zip([3, *sizes], sizes))
        self.ups = nn.ModuleList(up(i, o) for i, o in [(8 * c, 8 * c), (16 * c, 8 * c), (16 * c, 4 * c), (8 * c, 2 * c), (4 * c, c)])
        self.out = nn.Sequential(nn.ConvTranspose2d(2 * c, 3, 4, 2, 1), nn.Tanh())

    def forward(self, x):
        kept = []
        for it in self.downs:
            x = it(x)
            kept.append(x)
        x = kept.pop()
        for it in self.ups:
            x = torch.cat([it(x), kept.pop()], 1)
        return self.out(x)


class Pix2Pix(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.generator = Generator()
        self.critic = nn.Sequential(down(6, 64, False), down(64, 128), down(128, 256), nn.Conv2d(256, 512, 4, 1, 1), nn.LeakyReLU(0.2), nn.Conv2d(512, 1, 4, 1, 1))
        self.loss = nn.BCEWithLogitsLoss()

    def judged(self, a, b, real):
        out = self.critic(torch.cat([a, b], 1))
        return self.loss(out, torch.full_like(out, float(real)))

    def training_step(self, batch, _):
        g, d = self.optimizers()
        a, b = batch
        made = self.generator(a)
        self.toggle_optimizer(d)
        loss = 0.5 * (self.judged(a, b, True) + self.judged(a, made.detach(), False))
        d.zero_grad()
        self.manual_backward(loss)
        d.step()
        self.untoggle_optimizer(d)
        self.toggle_optimizer(g)
        loss = self.judged(a, made, True) + 100 * (made - b).abs().mean()
        g.zero_grad()
        self.manual_backward(loss)
        g.step()
        self.untoggle_optimizer(g)
        self.log("loss", loss, prog_bar=True)

    def validation_step(self, batch, _):
        self.log("l1", (self.generator(batch[0]) - batch[1]).abs().mean())

    def configure_optimizers(self):
        return [torch.optim.Adam(it.parameters(), 2e-4, betas=(0.5, 0.999)) for it in (self.generator, self.critic)]


L.seed_everything(0)
pairs = TensorDataset(torch.rand(480, 3, 256, 256), torch.rand(480, 3, 256, 256))
trainer = L.Trainer(max_epochs=2, accelerator="gpu", devices=1, logger=False, enable_checkpointing=False, num_sanity_val_steps=0)
trainer.fit(Pix2Pix(), DataLoader(pairs, 48, shuffle=True, drop_last=True), DataLoader(pairs, 24))
