"""EfficientNet-B3 with mixup, GradScaler, channels-last and cudnn.benchmark; batches from a loader with workers."""

import torch
import torchvision
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.backends.cudnn.benchmark = True


class Images(Dataset):
    def __len__(self):
        return 2048

    def __getitem__(self, i):
        return torch.randn(3, 300, 300, generator=torch.Generator().manual_seed(i)), i % 100


def main():
    net = torchvision.models.efficientnet_b3(num_classes=100).cuda().to(memory_format=torch.channels_last)
    opt = torch.optim.RMSprop(net.parameters(), 0.016, alpha=0.9, momentum=0.9, weight_decay=1e-5)
    scaler = torch.amp.GradScaler("cuda")
    loader = DataLoader(Images(), batch_size=64, shuffle=True, num_workers=2, pin_memory=True, drop_last=True)
    for step, (x, y) in enumerate(loader):
        x, y = x.cuda(non_blocking=True).to(memory_format=torch.channels_last), y.cuda(non_blocking=True)
        lam, perm = torch.distributions.Beta(0.2, 0.2).sample().item(), torch.randperm(x.shape[0], device="cuda")
        with torch.autocast("cuda", dtype=torch.float16):
            out = net(lam * x + (1 - lam) * x[perm])
            loss = lam * nn.functional.cross_entropy(out, y) + (1 - lam) * nn.functional.cross_entropy(out, y[perm])
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()
        opt.zero_grad(set_to_none=True)
        if step == 11:
            break


if __name__ == "__main__":
    main()
