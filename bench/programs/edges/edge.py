"""Trainings on one GPU whose batches differ in length or size, with a limit on what PyTorch may reserve; prints what it took and where each segment lay.

    python edge.py checkpointed --limit 9884
"""

import argparse
import hashlib
import json

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

LENGTHS = (512, 300, 900, 650, 1024, 480, 760, 333)
KINDS = {}


def kind(make):
    """`make` returns what is trained, and the loss of a step by its number."""
    KINDS[make.__name__] = make
    return make


def encoder(width, layers):
    one = nn.TransformerEncoderLayer(width, width // 64, 4 * width, batch_first=True, norm_first=True)
    return nn.TransformerEncoder(one, layers, enable_nested_tensor=False)


def of_texts(words, width, layers):
    return nn.ModuleDict({"embed": nn.Embedding(words, width), "body": encoder(width, layers), "head": nn.Linear(width, words)})


@kind
def language(words=32000):
    model = of_texts(words, 1024, 8).cuda()

    def loss(i):
        x = torch.randint(words, (8, LENGTHS[i % 8]), device="cuda")
        with torch.autocast("cuda", torch.bfloat16):
            y = model["head"](model["body"](model["embed"](x)))
        return F.cross_entropy(y.flatten(0, 1).float(), x.flatten())

    return model, loss


@kind
def checkpointed(words=32000):
    model = of_texts(words, 1536, 8).cuda()

    def loss(i):
        x = torch.randint(words, (12, LENGTHS[i % 8]), device="cuda")
        y = model["embed"](x)
        for layer in model["body"].layers:
            y = checkpoint(layer, y, use_reentrant=False)
        return F.cross_entropy(model["head"](y).flatten(0, 1), x.flatten())

    return model, loss


@kind
def images():
    import torchvision

    model = torchvision.models.resnet50().cuda()

    def loss(i):
        side = (224, 288, 192, 256)[i % 4]
        return model(torch.randn(48 - 8 * (i % 3), 3, side, side, device="cuda")).float().logsumexp(1).mean()

    return model, loss


@kind
def recurrent(words=20000):
    model = nn.ModuleDict({"embed": nn.Embedding(words, 1024), "lstm": nn.LSTM(1024, 2048, 3, batch_first=True), "head": nn.Linear(2048, words)}).cuda()

    def loss(i):
        x = torch.randint(words, (64, LENGTHS[i % 8] // 4), device="cuda")
        y = model["head"](model["lstm"](model["embed"](x))[0])
        return F.cross_entropy(y.flatten(0, 1), x.flatten())

    return model, loss


@kind
def generates(words=32000):
    """Texts that it makes itself, on which it then trains."""
    model = of_texts(words, 1024, 6).cuda()

    def loss(i):
        with torch.no_grad():
            x = torch.randint(words, (16, 64), device="cuda")
            for _ in range(6):
                y = model["head"](model["body"](model["embed"](x))[:, -32:]).float().softmax(-1)
                x = torch.cat([x, y.argmax(-1)], 1)
        y = model["head"](model["body"](model["embed"](x)))
        return -y.log_softmax(-1).gather(-1, x[..., None]).mean()

    return model, loss


@kind
def saves(words=50000):
    """Made on the host, where its batches are made and copies of it are kept and dropped: the host's memory changes as it trains."""
    model = of_texts(words, 1280, 10)
    model.cuda()
    copies = []

    def loss(i):
        x = torch.randint(words, (10, LENGTHS[(3 * i) % 8])).cuda()
        if i % 3 == 2:
            copies.append({name: it.detach().cpu() for name, it in model.state_dict().items()})
            del copies[:-1]
        y = model["embed"](x)
        for layer in model["body"].layers:
            y = checkpoint(layer, y, use_reentrant=False)
        loss = F.cross_entropy(model["head"](y).flatten(0, 1), x.flatten())
        if i % 4 == 3:
            copies.clear()
        return loss

    return model, loss


class Blocks(nn.Module):
    """Images are halved four times and made whole again, with what was there on the way."""

    def __init__(self, width=64):
        super().__init__()
        sizes = [width << i for i in range(5)]
        two = lambda a, b: nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(), nn.Conv2d(b, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU())  # noqa: E731
        self.down = nn.ModuleList(two(a, b) for a, b in zip([3, *sizes], sizes))
        self.grow = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, stride=2) for a, b in zip(sizes, sizes[1:]))
        self.up = nn.ModuleList(two(b, a) for a, b in zip(sizes, sizes[1:]))
        self.last = nn.Conv2d(width, 12, 1)

    def forward(self, x):
        seen = []
        for down in self.down:
            x = down(F.max_pool2d(x, 2) if seen else x)
            seen.append(x)
        for grow, up, there in reversed(list(zip(self.grow, self.up, seen))):
            x = up(torch.cat([there, grow(x)], 1))
        return self.last(x)


@kind
def segments():
    """A U-Net on images that come from the host, two batches to a step, and an evaluation between."""
    model = Blocks().cuda()

    def batch(i):
        side = (256, 320, 192, 288, 224)[i % 5]
        x = torch.rand(12, 3, side, side)
        return x.cuda(), (x[:, 0] * 12).long().cuda()

    def loss(i):
        if i % 3 == 1:
            with torch.no_grad():
                model(batch(i + 2)[0]).argmax(1).float().mean()
        x, y = batch(2 * i)
        F.cross_entropy(model(x), y).backward()
        x, y = batch(2 * i + 1)
        return F.cross_entropy(model(x), y)

    return model, loss


@kind
def pairs(width=128):
    """Every pair of places of a sequence has a vector, and pays attention along its row and its column."""

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.along = nn.ModuleList(nn.MultiheadAttention(width, 4, batch_first=True) for _ in range(2))
            self.after = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

        def forward(self, z):
            for attention in self.along:
                flat = z.flatten(0, 1)
                z = (z + attention(flat, flat, flat, need_weights=False)[0].view(z.shape)).transpose(1, 2).contiguous()
            return z + self.after(z)

    model = nn.ModuleDict({"one": nn.Embedding(24, width), "layers": nn.ModuleList(Layer() for _ in range(6)), "head": nn.Linear(width, 64)}).cuda()

    def loss(i):
        n = (96, 160, 128, 208, 112, 176, 144, 192)[i % 8]
        x = model["one"](torch.randint(24, (2, n), device="cuda"))
        z = x[:, :, None] + x[:, None]
        for layer in model["layers"]:
            z = checkpoint(layer, z, use_reentrant=False) if 150 < n else layer(z)
        return F.cross_entropy(model["head"](z).flatten(0, 2), torch.randint(64, (2 * n * n,), device="cuda"))

    return model, loss


def train(make, steps):
    model, loss = make()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    for i in range(steps):
        loss(i).backward()
        optimizer.step()
        optimizer.zero_grad()


def taken():
    """What PyTorch's allocator did: its segments, and what all of its blocks' sizes in their order come to."""
    events = torch.cuda.memory._snapshot()["device_traces"][0]
    sizes = " ".join(f"{it['action']}{it['size']}" for it in events if it["action"] in ("alloc", "free_completed"))
    segments = [[it["action"][8], it["size"] >> 20, it["addr"] >> 20] for it in events if it["action"] in ("segment_alloc", "segment_free")]
    stats = torch.cuda.memory_stats()
    return {
        "retries": stats["num_alloc_retries"], "allocated": stats["allocated_bytes.all.peak"] >> 20, "reserved": stats["reserved_bytes.all.peak"] >> 20,
        "blocks": len(events), "order": hashlib.sha1(sizes.encode()).hexdigest()[:12], "segments": segments,
    }  # fmt: skip


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--limit", type=int, default=0, help="the MiB that PyTorch may reserve")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--out", help="a line of JSON goes there, and running out of memory is no failure")
    args = parser.parse_args()
    torch.manual_seed(0)
    if args.limit:
        torch.cuda.set_per_process_memory_fraction((args.limit << 20) / torch.cuda.get_device_properties(0).total_memory)
    if not args.out:
        train(KINDS[args.kind], args.steps)
        return
    torch.cuda.memory._record_memory_history(max_entries=1 << 19, context=None, stacks="python")
    fits = True
    try:
        train(KINDS[args.kind], args.steps)
        torch.cuda.synchronize()
    except torch.OutOfMemoryError:
        fits = False
    with open(args.out, "a") as f:
        f.write(json.dumps({"kind": args.kind, "limit": args.limit, "fits": fits, **taken()}) + "\n")


if __name__ == "__main__":
    main()
