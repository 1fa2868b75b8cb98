"""Models whose steps take 0.2 to 1 s on a GPU of 2025, data parallel or in a pipeline of all ranks; what each rank took goes to $OUT_LAYOUTS. Needs torchvision.

    torchrun --nproc-per-node 4 slow.py --model vit --kind ddp --bs 256
"""

import time

import split
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from ranks import options, run

SIDE, CLASSES = 224, 1000


class Patches(nn.Module):
    """What comes before the blocks of torchvision's vision transformer."""

    def __init__(self, whole):
        super().__init__()
        self.cut, self.token, self.positions = whole.conv_proj, whole.class_token, whole.encoder.pos_embedding

    def forward(self, x):
        x = self.cut(x).flatten(2).transpose(1, 2)
        return torch.cat([self.token.expand(len(x), -1, -1), x], dim=1) + self.positions


class FirstToken(nn.Module):
    def __init__(self, norm, head):
        super().__init__()
        self.norm, self.head = norm, head

    def forward(self, x):
        return self.head(self.norm(x)[:, 0])


def parts_of(name):
    """The model as modules that follow each other, each with one tensor."""
    if name == "gpt":
        whole = split.Gpt(range(16))
        return [whole.words, *whole.blocks.values(), nn.Sequential(whole.norm, whole.head)]
    from torchvision import models

    if name == "resnet":
        it = models.resnet152()
        stem = nn.Sequential(it.conv1, it.bn1, it.relu, it.maxpool)
        return [stem, *it.layer1, *it.layer2, *it.layer3, *it.layer4, nn.Sequential(it.avgpool, nn.Flatten(), it.fc)]
    if name == "vit":
        it = models.vit_l_16()
        return [Patches(it), *it.encoder.layers, FirstToken(it.encoder.ln, it.heads)]
    if name == "convnext":
        it = models.convnext_large()
        blocks = [block for part in it.features for block in part]
        return [*blocks, nn.Sequential(it.avgpool, it.classifier)]
    it = models.swin_b()
    blocks = [block for part in it.features for block in (part if isinstance(part, nn.Sequential) else [part])]
    return [*blocks, nn.Sequential(it.norm, it.permute, it.avgpool, it.flatten, it.head)]


def batch(args, rank):
    """Made before the steps, as processes of a loader would."""
    g = torch.Generator().manual_seed(rank)
    if args.model == "gpt":
        t = torch.randint(split.WORDS, (args.bs, split.LENGTH + 1), generator=g)
        return t[:, :-1].contiguous(), t[:, 1:].contiguous()
    return torch.rand(args.bs, 3, SIDE, SIDE, generator=g), torch.randint(CLASSES, (args.bs,), generator=g)


def loss_of(out, y):
    return F.cross_entropy(out.flatten(0, -2).float(), y.flatten())


def train(args, seen):
    rank, world = dist.get_rank(), dist.get_world_size()
    parts = parts_of(args.model)
    each = 2 if args.schedule == "interleaved" else 1
    if args.kind == "pp":
        from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B

        count = world * each
        mine, borders = [rank + i * world for i in range(each)], [len(parts) * i // count for i in range(count + 1)]
        models = [nn.Sequential(*parts[borders[i] : borders[i + 1]]).cuda().bfloat16() for i in mine]
        stages = [PipelineStage(model, i, count, torch.device("cuda")) for model, i in zip(models, mine)]
        kind = {"1f1b": Schedule1F1B, "gpipe": ScheduleGPipe, "interleaved": ScheduleInterleaved1F1B}[args.schedule]
        schedule = kind(stages if 1 < each else stages[0], args.micro, loss_fn=loss_of)
    else:
        models = [nn.parallel.DistributedDataParallel(nn.Sequential(*parts).cuda(), device_ids=[seen.local], gradient_as_bucket_view=args.view)]
    optimizer = torch.optim.AdamW([p for it in models for p in it.parameters()], lr=1e-4)
    inputs = [it.pin_memory() for it in batch(args, 0 if args.kind == "pp" else rank)]
    for step in range(args.steps):
        began = time.time()
        x, y = (it.cuda(non_blocking=True) for it in inputs)
        if args.kind == "pp":
            schedule.step(*([x.bfloat16() if x.is_floating_point() else x] if rank == 0 else []), **({"target": y} if rank == world - 1 else {}))
        else:
            with torch.autocast("cuda", torch.bfloat16):
                loss = loss_of(models[0](x), y)
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if args.free and step < args.steps - 1:
            continue
        seen.look(f"step{step + 1}")
        seen.marks[-1][0] += f", {time.time() - began:.2f} s"


def main(words=None):
    parser = options("slow", bs=64, micro=8, steps=5)
    parser.add_argument("--model", choices=["gpt", "resnet", "vit", "convnext", "swin"], default="gpt")
    parser.add_argument("--kind", choices=["ddp", "pp"], default="ddp")
    parser.add_argument("--schedule", choices=["1f1b", "gpipe", "interleaved"], default="1f1b")
    parser.add_argument("--view", action="store_true")
    parser.add_argument("--free", action="store_true", help="the host waits for the GPU after the last step only")
    run(parser.parse_args(words), train)


if __name__ == "__main__":
    main()
