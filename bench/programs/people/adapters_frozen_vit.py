"""Adapters in a frozen ViT-L/16 in float32 at 384 pixels; only they and the head learn; a LambdaLR and label smoothing."""
import torch
import torchvision
from torch import nn


class Adapter(nn.Module):
    def __init__(self, block, d, r=64):
        super().__init__()
        self.block, self.down, self.up = block, nn.Linear(d, r), nn.Linear(r, d)
        nn.init.zeros_(self.up.weight)

    def forward(self, x):
        x = self.block(x)
        return x + self.up(nn.functional.gelu(self.down(x)))


net = torchvision.models.vit_l_16(weights=None, image_size=384)
net.requires_grad_(False)
for n, block in enumerate(net.encoder.layers):
    net.encoder.layers[n] = Adapter(block, 1024)
net.heads = nn.Linear(1024, 120)
net.cuda()
learned = [p for p in net.parameters() if p.requires_grad]
print(sum(p.numel() for p in learned) / 1e6, "M learned")
optimizer = torch.optim.AdamW(learned, 1e-3)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1, s / 5))
criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
for step in range(25):
    x, y = torch.randn(12, 3, 384, 384), torch.randint(0, 120, (12,))
    out = net(x.cuda(non_blocking=True))
    loss = criterion(out, y.cuda())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
