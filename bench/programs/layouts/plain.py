"""A translator, PyTorch's own `nn.Transformer`, trained with DDP, FSDP2 or HSDP as tutorials do it; what each rank took goes to $OUT_LAYOUTS.

    torchrun --nproc-per-node 2 plain.py --kind hsdp --mbs 16
"""


import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from ranks import options, run
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel


class Translator(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.source, self.target = nn.Embedding(args.words, args.width), nn.Embedding(args.words, args.width)
        self.places = nn.Parameter(torch.zeros(args.length, args.width))
        self.body = nn.Transformer(args.width, args.width // 128, args.layers, args.layers, 4 * args.width, batch_first=True, norm_first=True)
        self.head = nn.Linear(args.width, args.words)

    def forward(self, x, y):
        later = nn.Transformer.generate_square_subsequent_mask(y.shape[1], device=y.device)
        x, y = (words(it) + self.places[: it.shape[1]] for words, it in ((self.source, x), (self.target, y)))
        return self.head(self.body(x, y, tgt_mask=later, tgt_is_causal=True))


def train(args, seen):
    torch.manual_seed(1)
    model = Translator(args).cuda()
    for layers in (model.body.encoder.layers, model.body.decoder.layers):
        for i in range(len(layers)):
            if args.ac:
                layers[i] = checkpoint_wrapper(layers[i])
            if args.kind != "ddp":
                shard(args, layers[i])
    if args.kind == "ddp":
        model = DistributedDataParallel(model, device_ids=[seen.local], gradient_as_bucket_view=args.view)
    else:
        shard(args, model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100)
    random = torch.Generator().manual_seed(seen.rank)
    for step in range(args.steps):
        x, y = (torch.randint(args.words, (args.mbs, args.length), generator=random).cuda(non_blocking=True) for _ in range(2))
        with torch.autocast("cuda", torch.bfloat16, enabled=args.kind == "ddp"):
            loss = F.cross_entropy(model(x, y[:, :-1]).flatten(0, 1), y[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        seen.look(f"step{step + 1}")


def shard(args, module):
    world = dist.get_world_size()
    sizes = (world, 1) if world < 4 else (2, world // 2)
    mesh = init_device_mesh("cuda", sizes, mesh_dim_names=("copies", "parts")) if args.kind == "hsdp" else init_device_mesh("cuda", (world,))
    fully_shard(module, mesh=mesh, mp_policy=MixedPrecisionPolicy(torch.bfloat16, torch.float32))


def main(words=None):
    parser = options("plain", mbs=16, length=1024, layers=6, width=2048, words=40000, steps=4)
    parser.add_argument("--kind", choices=["ddp", "fsdp", "hsdp"], default="fsdp")
    parser.add_argument("--ac", action="store_true", help="layers run again in the backward pass")
    parser.add_argument("--view", action="store_true", help="gradients are views of DDP's buckets")
    run(parser.parse_args(words), train)


if __name__ == "__main__":
    main()
