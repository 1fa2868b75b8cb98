"""Lightning Fabric: a ViT in bf16-mixed, gradients added up over two batches, a validation after each epoch, checkpoints of the state."""

import tempfile

import lightning as L
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset
from torchvision.models import vit_b_16


def pictures(n):
    return TensorDataset(torch.randn(n, 3, 224, 224), torch.randint(1000, (n,)))


def main():
    fabric = L.Fabric(accelerator="cuda", devices=1, precision="bf16-mixed")
    fabric.launch()
    fabric.seed_everything(0)
    model = vit_b_16(weights=None, dropout=0.1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.05)
    model, optimizer = fabric.setup(model, optimizer)
    training, validation = fabric.setup_dataloaders(DataLoader(pictures(512), batch_size=64, shuffle=True, drop_last=True), DataLoader(pictures(128), batch_size=64))
    with tempfile.TemporaryDirectory() as folder:
        for epoch in range(3):
            model.train()
            for at, (x, y) in enumerate(training):
                is_adding_up = at % 2 == 0
                with fabric.no_backward_sync(model, enabled=is_adding_up):
                    fabric.backward(F.cross_entropy(model(x), y, label_smoothing=0.1) / 2)
                if not is_adding_up:
                    fabric.clip_gradients(model, optimizer, max_norm=1.0)
                    optimizer.step()
                    optimizer.zero_grad()
            model.eval()
            with torch.no_grad():
                right = sum((model(x).argmax(1) == y).sum() for x, y in validation)
            fabric.print(epoch, int(right))
            fabric.save(f"{folder}/last.pt", {"model": model, "optimizer": optimizer})


main()
