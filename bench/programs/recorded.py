"""GPT-2 small, ResNet-50 or something small in plain torch; prints its own step times, from events on the device (see `../instruments/recorder.py`).

`tiny` and `cells` wait for Python: hundreds of operations that each take the device a few microseconds. Under torchrun it is DDP.
"""
import argparse, json, os, statistics, time
import torch
from torch import nn
from torch.nn import functional as F

p = argparse.ArgumentParser()
p.add_argument("model")
p.add_argument("--batch", type=int, default=8)
p.add_argument("--seq", type=int, default=512)
p.add_argument("--steps", type=int, default=55)
p.add_argument("--skip", type=int, default=15)
p.add_argument("--out")
a = p.parse_args()


class Attention(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.c_attn, self.c_proj, self.drop = nn.Linear(d, 3 * d), nn.Linear(d, d), nn.Dropout(0.1)

    def forward(self, x):
        b, s, d = x.shape
        q, k, v = (t.view(b, s, 12, d // 12).transpose(1, 2) for t in self.c_attn(x).split(d, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.drop(self.c_proj(y.transpose(1, 2).reshape(b, s, d)))


class MLP(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.c_fc, self.act, self.c_proj, self.drop = nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d), nn.Dropout(0.1)

    def forward(self, x):
        return self.drop(self.c_proj(self.act(self.c_fc(x))))


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.ln_1, self.attn, self.ln_2, self.mlp = nn.LayerNorm(d), Attention(d), nn.LayerNorm(d), MLP(d)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT2(nn.Module):
    def __init__(self, d=768, layers=12, vocab=50257):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, d), nn.Embedding(1024, d)
        self.h = nn.ModuleList(Block(d) for _ in range(layers))
        self.ln_f, self.head = nn.LayerNorm(d), nn.Linear(d, vocab, bias=False)
        self.head.weight = self.wte.weight

    def forward(self, ids):
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1], device=ids.device))
        for block in self.h:
            x = block(x)
        return self.head(self.ln_f(x))


class Bottleneck(nn.Module):
    def __init__(self, i, w, stride):
        super().__init__()
        o = 4 * w
        self.conv1, self.bn1 = nn.Conv2d(i, w, 1, bias=False), nn.BatchNorm2d(w)
        self.conv2, self.bn2 = nn.Conv2d(w, w, 3, stride, 1, bias=False), nn.BatchNorm2d(w)
        self.conv3, self.bn3 = nn.Conv2d(w, o, 1, bias=False), nn.BatchNorm2d(o)
        self.relu = nn.ReLU(inplace=True)
        self.down = nn.Sequential(nn.Conv2d(i, o, 1, stride, bias=False), nn.BatchNorm2d(o)) if stride > 1 or i != o else None

    def forward(self, x):
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        return self.relu(y + (x if self.down is None else self.down(x)))


def resnet50():
    parts, i = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)], 64
    for w, n, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for k in range(n):
            parts.append(Bottleneck(i, w, stride if k == 0 else 1))
            i = 4 * w
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(i, 1000))


class Cells(nn.Module):
    """An LSTM by hand, cell after cell."""

    def __init__(self, d=128, length=48):
        super().__init__()
        self.cell, self.out, self.length = nn.LSTMCell(d, d), nn.Linear(d, 10), length

    def forward(self, x):
        h = c = x
        for _ in range(self.length):
            h, c = self.cell(torch.tanh(h) * 0.5 + x, (h, c))
        return self.out(h)


def tiny(d=64, layers=64):
    return nn.Sequential(*[nn.Sequential(nn.LayerNorm(d), nn.Linear(d, d), nn.GELU(), nn.Dropout(0.1)) for _ in range(layers)], nn.Linear(d, 10))


def main():
    torch.manual_seed(0)
    ranks = int(os.environ.get("WORLD_SIZE", 1))
    if "RANK" in os.environ:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        torch.distributed.init_process_group("nccl")
    if a.model == "gpt2":
        model = GPT2().cuda()
        optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
        x = torch.randint(50257, (a.batch, a.seq), device="cuda")
        y = x.roll(-1, 1)
    elif a.model in ("tiny", "cells"):
        model = tiny().cuda() if a.model == "tiny" else Cells().cuda()
        optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
        x = torch.randn(a.batch, 64 if a.model == "tiny" else 128, device="cuda")
        y = torch.randint(10, (a.batch,), device="cuda")
    else:
        model = resnet50().cuda()
        optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
        x = torch.randn(a.batch, 3, 224, 224, device="cuda")
        y = torch.randint(1000, (a.batch,), device="cuda")
    if ranks > 1:
        model = nn.parallel.DistributedDataParallel(model)
    events, loss, walls = [], None, []
    for step in range(a.steps):
        e = torch.cuda.Event(enable_timing=True)
        optimizer.zero_grad()
        out = model(x)
        loss = F.cross_entropy(out.flatten(0, -2), y.flatten())
        loss.backward()
        optimizer.step()
        e.record()
        events.append(e)
        walls.append(time.perf_counter())
        if step == a.skip:
            torch.cuda.synchronize()
            began, computed = time.perf_counter(), time.process_time()
    computed = time.process_time() - computed
    torch.cuda.synchronize()
    n = a.steps - a.skip - 1
    result = {
        "wall_per_step": (time.perf_counter() - began) / n if n > 0 else None,
        "device_median": statistics.median(p.elapsed_time(q) / 1e3 for p, q in zip(events[a.skip :], events[a.skip + 1 :])) if n > 0 else None,
        "cpu_per_step": statistics.median(q - p for p, q in zip(walls[a.skip :], walls[a.skip + 1 :])) if n > 0 else None,
        "processor_per_step": computed / n if n > 0 else None,
        "loss": loss.item(),
        "weights": sum(q.double().abs().sum().item() for q in model.parameters()),
        "peak_allocated": torch.cuda.max_memory_allocated(),
        "peak_reserved": torch.cuda.max_memory_reserved(),
    }
    if int(os.environ.get("RANK", 0)) == 0:
        print(json.dumps(result), flush=True)
    if a.out:
        open(a.out, "w").write(json.dumps(result))
    if ranks > 1:
        torch.distributed.destroy_process_group()


main()
