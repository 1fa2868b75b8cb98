"""Train a small ResNet on CIFAR sized images with DDP.   torchrun --nproc_per_node=2 ddp_cifar.py"""

import argparse
import os
import time
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class FakeCIFAR(Dataset):
    def __init__(self, n, train):
        self.n = n
        self.train = train

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        return torch.randn(3, 32, 32, generator=g), int(torch.randint(0, 10, (1,), generator=g))


class Block(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.c1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.b1 = nn.BatchNorm2d(cout)
        self.c2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.b2 = nn.BatchNorm2d(cout)
        self.short = (
            nn.Sequential()
            if stride == 1 and cin == cout
            else nn.Sequential(nn.Conv2d(cin, cout, 1, stride, bias=False), nn.BatchNorm2d(cout))
        )

    def forward(self, x):
        out = F.relu(self.b1(self.c1(x)))
        out = self.b2(self.c2(out))
        return F.relu(out + self.short(x))


class Net(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True))
        ls, c = [], width
        for i, n in enumerate([2, 2, 2]):
            for j in range(n):
                ls.append(Block(c, width * 2**i, 2 if j == 0 and i else 1))
                c = width * 2**i
        self.layers = nn.Sequential(*ls)
        self.fc = nn.Linear(c, 10)

    def forward(self, x):
        return self.fc(self.layers(self.stem(x)).mean((2, 3)))


def reduce_mean(t):
    t = t.clone().detach()
    dist.all_reduce(t, op=dist.ReduceOp.SUM)
    return t / dist.get_world_size()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=2)
    p.add_argument("--batch-size", type=int, default=128)
    p.add_argument("--out", default="cifar-checkpoint.pt")
    a = p.parse_args()
    dist.init_process_group(backend="nccl")
    rank, local = dist.get_rank(), int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    torch.manual_seed(42 + rank)
    device = torch.device("cuda", local)
    net = nn.SyncBatchNorm.convert_sync_batchnorm(Net()).to(device)
    net = DDP(net, device_ids=[local], output_device=local)
    train, test = FakeCIFAR(128 * 12, True), FakeCIFAR(512, False)
    sampler = DistributedSampler(train, shuffle=True)
    loader = DataLoader(
        train, a.batch_size, sampler=sampler, num_workers=2, pin_memory=True, drop_last=True, persistent_workers=True
    )
    test_loader = DataLoader(test, a.batch_size, sampler=DistributedSampler(test, shuffle=False), num_workers=0)
    opt = torch.optim.SGD(net.parameters(), lr=0.1 * dist.get_world_size(), momentum=0.9, weight_decay=5e-4, nesterov=True)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, 0.4, total_steps=a.epochs * len(loader))
    scaler = torch.amp.GradScaler("cuda", enabled=False)
    for epoch in range(a.epochs):
        sampler.set_epoch(epoch)
        net.train()
        for i, (x, y) in enumerate(loader):
            x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = F.cross_entropy(net(x), y, label_smoothing=0.1)
            opt.zero_grad(set_to_none=True)
            scaler.scale(loss).backward()
            scaler.step(opt)
            scaler.update()
            sched.step()
            l = reduce_mean(loss)
            if rank == 0 and i % 3 == 0:
                print(f"epoch {epoch} it {i} loss {l.item():.3f} lr {sched.get_last_lr()[0]:.3f}", flush=True)
        net.eval()
        correct = torch.zeros(2, device=device)
        with torch.no_grad():
            for x, y in test_loader:
                out = net(x.to(device))
                correct[0] += (out.argmax(1) == y.to(device)).sum()
                correct[1] += y.numel()
        dist.all_reduce(correct)
        if rank == 0:
            print("acc", (correct[0] / correct[1]).item())
            torch.save({"model": net.module.state_dict(), "opt": opt.state_dict(), "epoch": epoch}, a.out)
        dist.barrier(device_ids=[local])
        ck = torch.load(a.out, map_location={"cuda:0": f"cuda:{local}"})
        net.module.load_state_dict(ck["model"])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
