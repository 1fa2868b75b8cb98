"""A stage of the model on every rank, or several."""

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed import pipelining

from jobs import kind


def layers():
    return nn.Sequential(*[nn.Sequential(nn.Linear(2048, 2048), nn.ReLU()) for _ in range(6)]).cuda()


def train(schedule, parts, batch):
    """The first rank has the inputs, the last one the targets."""
    rank, world = dist.get_rank(), dist.get_world_size()
    optimizer = torch.optim.Adam([p for it in parts for p in it.parameters()])
    for _ in range(4):
        x = batch()
        inputs = (x,) if rank == 0 else ()
        last = {"target": x, "losses": []} if rank == world - 1 else {}
        schedule.step(*inputs, **last)
        optimizer.step()
        optimizer.zero_grad()


def piped(local, schedule, n_parts, micro_batches, samples):
    """`n_parts` stages on each rank: the first rank has stages 0, `world`, ..."""
    rank, world = dist.get_rank(), dist.get_world_size()
    parts = [layers() for _ in range(n_parts)]
    device = torch.device("cuda", local)
    stages = [pipelining.PipelineStage(it, rank + world * i, world * n_parts, device) for i, it in enumerate(parts)]
    several = issubclass(schedule, pipelining.schedules.PipelineScheduleMulti)
    run = schedule(stages if several else stages[0], n_microbatches=micro_batches, loss_fn=F.mse_loss)
    train(run, parts, lambda: torch.randn(samples, 2048).cuda())


@kind
def pipeline_two_stages(local):
    piped(local, pipelining.ScheduleGPipe, 1, micro_batches=4, samples=256)


@kind
def pipeline_1f1b(local):
    piped(local, pipelining.Schedule1F1B, 1, micro_batches=8, samples=1024)


@kind
def pipeline_interleaved(local):
    piped(local, pipelining.ScheduleInterleaved1F1B, 2, micro_batches=8, samples=1024)


@kind
def pipeline_zero_bubble(local):
    """Gradients of inputs and of weights at different times."""
    piped(local, pipelining.ScheduleInterleavedZeroBubble, 2, micro_batches=8, samples=1024)


@kind
def pipeline_traced(local):
    """PyTorch cuts a whole model in two, and what crosses the cut is the hidden state."""
    rank, world = dist.get_rank(), dist.get_world_size()

    class Words(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(8000, 512)
            self.layers = nn.ModuleDict({str(i): nn.Sequential(nn.LayerNorm(512), nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512)) for i in range(4)})
            self.head = nn.Linear(512, 8000)

        def forward(self, ids):
            x = self.words(ids)
            for layer in self.layers.values():
                x = x + layer(x)
            return self.head(x)

    cuts = {f"layers.{4 * i // world}": pipelining.SplitPoint.BEGINNING for i in range(1, world)}
    whole = pipelining.pipeline(Words(), mb_args=(torch.zeros(4, 256, dtype=torch.long),), split_spec=cuts)
    part = whole.get_stage_module(rank).cuda()
    stage = whole.build_stage(rank, torch.device("cuda", local))
    loss = lambda y, ids: F.cross_entropy(y.flatten(0, 1), ids.flatten())  # noqa: E731
    train(pipelining.ScheduleGPipe(stage, n_microbatches=4, loss_fn=loss), [part], lambda: torch.randint(0, 8000, (16, 256)).cuda())
