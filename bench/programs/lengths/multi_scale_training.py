"""Multi-scale training as YOLO does it: every ten steps the whole batch gets another size; a grid of cells predicts, evaluation at one size."""
import argparse
import json
import random

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=240)
parser.add_argument("--batch-size", type=int, default=32)
parser.add_argument("--eval-batch-size", type=int, default=64)
parser.add_argument("--eval-every", type=int, default=60)
parser.add_argument("--sizes", type=int, nargs="+", default=list(range(320, 641, 32)))
parser.add_argument("--width", type=int, default=32)
parser.add_argument("--device", default="cuda")
opt = parser.parse_args()
CLASSES, BASE = 40, sorted(opt.sizes)[len(opt.sizes) // 2]


class Scenes(Dataset):
    def __init__(self, n, seed):
        self.n, self.seed = n, seed

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        gen = torch.Generator().manual_seed(self.seed * 100_003 + i)
        objects = int(torch.randint(1, 12, (), generator=gen))
        tile = torch.randint(0, 256, (3, BASE // 16, BASE // 16), generator=gen, dtype=torch.uint8)
        return tile.repeat(1, 16, 16), torch.rand(objects, 5, generator=gen)


def collate(items):
    objects = [torch.cat([torch.full((len(o), 1), float(i)), o], dim=1) for i, (_, o) in enumerate(items)]
    return torch.stack([x for x, _ in items]), torch.cat(objects)


class Unit(nn.Module):
    def __init__(self, i, o, kernel=3, stride=1):
        super().__init__()
        self.conv = nn.Conv2d(i, o, kernel, stride, kernel // 2, bias=False)
        self.bn = nn.BatchNorm2d(o)

    def forward(self, x):
        return F.silu(self.bn(self.conv(x)), inplace=True)


class Dark(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.one, self.two = Unit(c, c // 2, 1), Unit(c // 2, c)

    def forward(self, x):
        return x + self.two(self.one(x))


class Grid(nn.Module):
    def __init__(self, w):
        super().__init__()
        layers = [Unit(3, w, stride=2)]
        for c, n in ((w, 2), (2 * w, 4), (4 * w, 6), (8 * w, 3)):
            layers += [Unit(c, 2 * c, stride=2), *(Dark(2 * c) for _ in range(n))]
        self.body, self.head = nn.Sequential(*layers), nn.Conv2d(16 * w, 5 + CLASSES, 1)

    def forward(self, x):
        return self.head(self.body(x)).permute(0, 2, 3, 1)


def grid_loss(out, objects):
    out = out.float()
    b, h, w, _ = out.shape
    x, y = objects[:, 1] * w, objects[:, 2] * h
    cell = (objects[:, 0].long(), y.long().clamp(max=h - 1), x.long().clamp(max=w - 1))
    there = torch.zeros(b, h, w, device=out.device)
    there[cell] = 1
    mine = out[cell]
    place = torch.stack([x % 1, y % 1, objects[:, 3], objects[:, 4]], dim=1)
    kind = (objects[:, 3] * CLASSES).long().clamp(max=CLASSES - 1)
    sure = F.binary_cross_entropy_with_logits(out[..., 0], there)
    return sure + F.mse_loss(mine[:, 1:5].sigmoid(), place) + F.cross_entropy(mine[:, 5:], kind)


def main():
    random.seed(0)
    torch.manual_seed(0)
    device = opt.device
    model = Grid(opt.width).to(device)
    loader = DataLoader(Scenes(240 * opt.batch_size, 1), batch_size=opt.batch_size, shuffle=True, collate_fn=collate)
    held = DataLoader(Scenes(2 * opt.eval_batch_size, 2), batch_size=opt.eval_batch_size, collate_fn=collate)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.937, nesterov=True)
    average = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.999), use_buffers=True)
    step, size = 0, BASE
    while step < opt.steps:
        for pictures, objects in loader:
            if step % 10 == 0:
                size = random.choice(opt.sizes)
            pictures = pictures.to(device, non_blocking=True).float() / 255
            if size != BASE:
                pictures = F.interpolate(pictures, size=(size, size), mode="bilinear", align_corners=False)
            with torch.autocast(opt.device, dtype=torch.bfloat16):
                loss = grid_loss(model(pictures), objects.to(device))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            average.update_parameters(model)
            step += 1
            if step % opt.eval_every == 0:
                average.eval()
                with torch.inference_mode(), torch.autocast(opt.device, dtype=torch.bfloat16):
                    losses = [grid_loss(average(p.to(device).float() / 255), o.to(device)).item() for p, o in held]
                print(f"step {step} size {size} loss {loss.item():.3f} held out {sum(losses) / len(losses):.3f}")
            if step >= opt.steps:
                break
    print("MEASURED", json.dumps({"steps": step, "peak_allocated": torch.cuda.max_memory_allocated(), "peak_reserved": torch.cuda.max_memory_reserved()}))


if __name__ == "__main__":
    main()
