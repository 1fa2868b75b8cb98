"""A VAE with accelerate, three outputs, reparametrization, two optimizers by hand, evaluation without no_grad."""

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch import nn


def block(i, o, stride):
    return nn.Sequential(nn.Conv2d(i, o, 3, stride, 1), nn.GroupNorm(8, o), nn.SiLU(), nn.Conv2d(o, o, 3, 1, 1), nn.SiLU())


class VAE(nn.Module):
    def __init__(self, ch=96, z=8):
        super().__init__()
        self.enc = nn.Sequential(block(3, ch, 1), block(ch, 2 * ch, 2), block(2 * ch, 4 * ch, 2), nn.Conv2d(4 * ch, 2 * z, 1))
        self.dec = nn.Sequential(
            block(z, 4 * ch, 1), nn.Upsample(scale_factor=2), block(4 * ch, 2 * ch, 1), nn.Upsample(scale_factor=2),
            block(2 * ch, ch, 1), nn.Conv2d(ch, 3, 3, padding=1),
        )

    def forward(self, x):
        mu, logvar = self.enc(x).chunk(2, 1)
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp()
        return self.dec(z), mu, logvar


def main(batch_size=40, size=128):
    accelerator = Accelerator()
    torch.manual_seed(0)
    model = VAE()
    opt_enc = torch.optim.AdamW(model.enc.parameters(), 1e-4)
    opt_dec = torch.optim.AdamW(model.dec.parameters(), 2e-4)
    data = torch.utils.data.TensorDataset(torch.rand(batch_size * 6, 3, size, size))
    loader = torch.utils.data.DataLoader(data, batch_size=batch_size, shuffle=True)
    model, opt_enc, opt_dec, loader = accelerator.prepare(model, opt_enc, opt_dec, loader)
    for epoch in range(3):
        model.train()
        for (x,) in loader:
            recon, mu, logvar = model(x)
            rec = F.mse_loss(recon, x, reduction="sum") / len(x)
            kl = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum() / len(x)
            loss = rec + 1e-3 * kl
            opt_enc.zero_grad()
            opt_dec.zero_grad()
            accelerator.backward(loss)
            opt_enc.step()
            opt_dec.step()
        model.eval()
        recon, _, _ = model(x)
        accelerator.print(epoch, F.l1_loss(recon, x).item())


if __name__ == "__main__":
    main()
