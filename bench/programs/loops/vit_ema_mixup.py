"""A vision transformer trained in half precision with MixUp, an average of its weights, and a schedule that moves each step."""

import math

import torch
import torch.nn.functional as F
import torchvision
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
classes, batch_size, epochs, steps_per_epoch, image = 1000, 256, 2, 8, 224


class Images(torch.utils.data.Dataset):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return torch.randn(3, image, image), i % classes


def mixup(x, y, alpha=0.2):
    lam = float(torch.distributions.Beta(alpha, alpha).sample())
    perm = torch.randperm(x.size(0), device=x.device)
    target = F.one_hot(y, classes).to(x.dtype)
    return lam * x + (1 - lam) * x[perm], lam * target + (1 - lam) * target[perm]


def main():
    model = torchvision.models.vit_b_16(num_classes=classes).to(device)
    ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9999))
    decay = [p for p in model.parameters() if p.dim() > 1]
    no_decay = [p for p in model.parameters() if p.dim() <= 1]
    optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.05}, {"params": no_decay, "weight_decay": 0.0}], lr=1e-3)
    total = epochs * steps_per_epoch
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda s: min(1.0, (s + 1) / 4) * 0.5 * (1 + math.cos(math.pi * s / total))
    )
    loader = torch.utils.data.DataLoader(Images(batch_size * steps_per_epoch), batch_size, shuffle=True)
    val_loader = torch.utils.data.DataLoader(Images(batch_size), batch_size)
    for epoch in range(epochs):
        model.train()
        for x, y in loader:
            x, y = mixup(x.to(device), y.to(device))
            with torch.autocast(device.type, dtype=torch.bfloat16):
                loss = F.cross_entropy(model(x), y, label_smoothing=0.1)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            ema.update_parameters(model)
        ema.eval()
        correct = 0
        with torch.inference_mode():
            for x, y in val_loader:
                with torch.autocast(device.type, dtype=torch.bfloat16):
                    correct += (ema(x.to(device)).argmax(1) == y.to(device)).sum().item()


if __name__ == "__main__":
    main()
