"""A vision transformer in half precision, with a gradient scaler."""

import torch
import torch.nn.functional as F

from planted import STEPS, ended, size

from torchvision.models import VisionTransformer

model = VisionTransformer(image_size=224, patch_size=16, num_layers=4, num_heads=6, hidden_dim=384, mlp_dim=1536).cuda()
optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
scaler = torch.amp.GradScaler("cuda")
for step in range(STEPS):
    n = size(step, 32, 256)
    x, y = torch.randn(n, 3, 224, 224, device="cuda"), torch.randint(0, 1000, (n,), device="cuda")
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = F.cross_entropy(model(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    ended(step, loss, model)
