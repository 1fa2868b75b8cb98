"""A GPT that is split by hand, as Megatron does it: tensor parallel with its own autograd functions and a loss over a split vocabulary, or stages that
send each other micro-batches in 1F1B; Adam's states in float32 in one flat buffer, split over data-parallel ranks. What each rank took goes to $OUT_LAYOUTS.

    torchrun --nproc-per-node 2 mega.py --tp 2 --sequence
"""


import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from ranks import options, run
from torch.utils.checkpoint import checkpoint

WIDTH, HEADS, WORDS, LENGTH = 4096, 32, 64000, 4096


class Copied(torch.autograd.Function):
    """The same on all ranks; its gradient is summed."""

    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, grad):
        grad = grad.contiguous()
        dist.all_reduce(grad)
        return grad


class Summed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad


class Gathered(torch.autograd.Function):
    """Tokens of all ranks, along the sequence."""

    @staticmethod
    def forward(ctx, x):
        whole = x.new_empty(x.shape[0] * dist.get_world_size(), *x.shape[1:])
        dist.all_gather_into_tensor(whole, x.contiguous())
        return whole

    @staticmethod
    def backward(ctx, grad):
        own = grad.new_empty(grad.shape[0] // dist.get_world_size(), *grad.shape[1:])
        dist.reduce_scatter_tensor(own, grad.contiguous())
        return own


class Scattered(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        own = x.new_empty(x.shape[0] // dist.get_world_size(), *x.shape[1:])
        dist.reduce_scatter_tensor(own, x.contiguous())
        return own

    @staticmethod
    def backward(ctx, grad):
        whole = grad.new_empty(grad.shape[0] * dist.get_world_size(), *grad.shape[1:])
        dist.all_gather_into_tensor(whole, grad.contiguous())
        return whole


class SplitLoss(torch.autograd.Function):
    """Cross entropy where each rank has a part of the words."""

    @staticmethod
    def forward(ctx, logits, y):
        logits = logits.float()
        most = logits.max(-1).values
        dist.all_reduce(most, op=dist.ReduceOp.MAX)
        logits = logits - most.unsqueeze(-1)
        first = dist.get_rank() * logits.shape[-1]
        outside = (y < first) | (y >= first + logits.shape[-1])
        own = (y - first).masked_fill(outside, 0)
        chosen = logits.gather(-1, own.unsqueeze(-1)).squeeze(-1).masked_fill(outside, 0.0)
        dist.all_reduce(chosen)
        shares = logits.exp()
        total = shares.sum(-1)
        dist.all_reduce(total)
        ctx.save_for_backward(shares.div_(total.unsqueeze(-1)), own, outside)
        return (total.log() - chosen).mean()

    @staticmethod
    def backward(ctx, grad):
        shares, own, outside = ctx.saved_tensors
        shares.scatter_add_(-1, own.unsqueeze(-1), -(~outside).float().unsqueeze(-1))
        return shares.mul_(grad / own.numel()).to(torch.bfloat16), None


class Block(nn.Module):
    """Tokens first: [tokens, samples, width]."""

    def __init__(self, args):
        super().__init__()
        tp, self.args = args.tp, args
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH // tp)
        self.out = nn.Linear(WIDTH // tp, WIDTH, bias=False)
        self.up = nn.Linear(WIDTH, 4 * WIDTH // tp)
        self.down = nn.Linear(4 * WIDTH // tp, WIDTH, bias=False)

    def enter(self, x):
        if self.args.tp == 1:
            return x
        return Gathered.apply(x) if self.args.sequence else Copied.apply(x)

    def leave(self, x):
        if self.args.tp == 1:
            return x
        return Scattered.apply(x) if self.args.sequence else Summed.apply(x)

    def forward(self, x):
        h = self.enter(self.norm1(x))
        t, b, _ = h.shape
        q, k, v = (it.view(t, b, -1, WIDTH // HEADS).permute(1, 2, 0, 3) for it in self.qkv(h).chunk(3, -1))
        h = F.scaled_dot_product_attention(q, k, v, is_causal=True).permute(2, 0, 1, 3).reshape(t, b, -1)
        x = x + self.leave(self.out(h))
        return x + self.leave(self.down(F.gelu(self.up(self.enter(self.norm2(x))))))


class Stage(nn.Module):
    def __init__(self, args, first, last):
        super().__init__()
        self.args = args
        self.words = nn.Embedding(WORDS, WIDTH) if first else None
        self.blocks = nn.ModuleList(Block(args) for _ in range(args.layers // args.pp))
        self.norm = nn.LayerNorm(WIDTH) if last else None
        self.head = nn.Linear(WIDTH, WORDS // args.tp, bias=False) if last else None

    def forward(self, x):
        if self.words is not None:
            x = self.words(x).transpose(0, 1).contiguous()
            if self.args.sequence:
                x = x.chunk(dist.get_world_size())[dist.get_rank()].contiguous()
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.args.ac else block(x)
        if self.head is None:
            return x
        return self.head(self.blocks[-1].enter(self.norm(x)))


class FlatAdam:
    """Weights and gradients in one buffer each; float32 copies and both moments of this rank's part."""

    def __init__(self, model, n, at):
        all_ = list(model.parameters())
        size = -(-sum(it.numel() for it in all_) // n) * n
        self.weights = torch.zeros(size, dtype=torch.bfloat16, device="cuda")
        self.grads = torch.zeros(size, dtype=torch.float32, device="cuda")
        begin = 0
        for it in all_:
            end = begin + it.numel()
            self.weights[begin:end].copy_(it.detach().flatten())
            it.data = self.weights[begin:end].view_as(it)
            it.main_grad = self.grads[begin:end].view(it.shape)
            it.register_post_accumulate_grad_hook(self.accumulate)
            begin = end
        self.n, self.own = n, slice(size // n * at, size // n * (at + 1))
        self.main = self.weights[self.own].float()
        self.first, self.second, self.count = torch.zeros_like(self.main), torch.zeros_like(self.main), 0

    @staticmethod
    def accumulate(it):
        it.main_grad.add_(it.grad)
        it.grad = None

    def step(self):
        grad = self.grads[self.own]
        if 1 < self.n:
            dist.reduce_scatter_tensor(grad, self.grads)
        self.count += 1
        self.first.lerp_(grad, 0.1)
        self.second.mul_(0.95).addcmul_(grad, grad, value=0.05)
        self.main.addcdiv_(self.first, self.second.sqrt().add_(1e-8), value=-1e-4)
        self.weights[self.own].copy_(self.main)
        if 1 < self.n:
            dist.all_gather_into_tensor(self.weights, self.weights[self.own])
        self.grads.zero_()


def loss_of(args, logits, y):
    y = y.transpose(0, 1).contiguous()
    return SplitLoss.apply(logits, y) if args.tp > 1 else F.cross_entropy(logits.float().flatten(0, 1), y.flatten())


def batch(args, n):
    t = torch.randint(WORDS, (args.mbs, LENGTH + 1), generator=torch.Generator().manual_seed(n)).cuda()
    return t[:, :-1], t[:, 1:]


def pipelined(args, model, step):
    """1F1B of two stages and more: each message is sent and awaited with what comes back."""
    rank, n = dist.get_rank(), args.micro
    first, last = rank == 0, rank == args.pp - 1
    fresh = lambda: torch.empty(LENGTH, args.mbs, WIDTH, dtype=torch.bfloat16, device="cuda")  # noqa: E731
    held = []

    def exchange(sends, wants):
        got = {peer: fresh() for peer in wants}
        ops = [dist.P2POp(dist.isend, it, peer) for peer, it in sends.items()] + [dist.P2POp(dist.irecv, it, peer) for peer, it in got.items()]
        for it in dist.batch_isend_irecv(ops) if ops else []:
            it.wait()
        return got

    def forward(i, x):
        tokens, y = batch(args, 100 * step + i)
        x = tokens if first else x.requires_grad_()
        out = model(x)
        held.append((x, loss_of(args, out, y) / n if last else out))
        return out

    def backward(grad):
        x, out = held.pop(0)
        out.backward(grad)
        return None if first else x.grad

    warm = min(args.pp - rank - 1, n)
    for i in range(warm):
        x = None if first else exchange({}, [rank - 1])[rank - 1]
        exchange({rank + 1: forward(i, x).detach()}, [])
    x = None if first or warm == n else exchange({}, [rank - 1])[rank - 1]
    for i in range(n - warm):
        out = forward(warm + i, x)
        grad = None if last else exchange({rank + 1: out.detach()}, [rank + 1])[rank + 1]
        back = backward(grad)
        more = i + 1 < n - warm
        x = None if first else exchange({rank - 1: back}, [rank - 1] if more else []).get(rank - 1)
    for _ in range(warm):
        back = backward(exchange({}, [rank + 1])[rank + 1])
        if not first:
            exchange({rank - 1: back}, [])


def train(args, seen):
    rank, world = dist.get_rank(), dist.get_world_size()
    dp = world // args.tp // args.pp
    with torch.device("cuda"):
        model = Stage(args, args.pp == 1 or rank == 0, args.pp == 1 or rank == args.pp - 1).bfloat16()
    optimizer = FlatAdam(model, dp, rank if 1 < dp else 0)
    for step in range(args.steps):
        if args.pp > 1:
            pipelined(args, model, step)
        else:
            for i in range(args.micro):
                x, y = batch(args, 1000 * step + i + (100 * rank if args.tp == 1 else 0))
                (loss_of(args, model(x), y) / args.micro).backward()
        optimizer.step()
        seen.look(f"step{step + 1}")


def main(words=None):
    parser = options("mega", tp=1, pp=1, mbs=1, micro=4, layers=8, steps=4)
    parser.add_argument("--sequence", action="store_true", help="what tensor parallel leaves whole is split along the sequence")
    parser.add_argument("--ac", action="store_true", help="blocks run again in the backward pass")
    run(parser.parse_args(words), train)


if __name__ == "__main__":
    main()
