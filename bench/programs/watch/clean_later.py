"""Trainings without a leak that were written when the watch was done."""

import collections
import copy
import random

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from clean import step_of
from models import Gpt, Mlp, Rnn, conv_net, images, rows, tokens


def rollouts():
    """Some hundred transitions are collected, learnt from in several epochs, and let go."""
    policy = Mlp(128, 2).cuda()
    optimizer = torch.optim.Adam(policy.parameters())
    while True:
        buffer = []
        for _ in range(random.randint(60, 200)):
            with torch.no_grad():
                x = rows(64, 128)
                buffer.append((x, policy(x)))
        for _ in range(random.randint(3, 10)):
            x, y = random.choice(buffer)
            step_of(policy, optimizer, F.mse_loss(policy(x), y + 1))
            yield


def pool_of_images():
    model, pool = conv_net().cuda(), []
    optimizer = torch.optim.Adam(model.parameters())
    while True:
        fake = images(8, 48)
        if len(pool) < 400:
            pool.append(fake)
        else:
            index = random.randrange(400)
            pool[index], fake = fake, pool[index]
        step_of(model, optimizer, model(fake).square().mean())
        yield


def folds():
    """A model for each fold, ever wider."""
    while True:
        for width in (64, 128, 192, 256, 320, 384, 448, 512):
            model = Mlp(width, 3).cuda()
            optimizer = torch.optim.AdamW(model.parameters())
            for _ in range(random.randint(100, 250)):
                step_of(model, optimizer, model(rows(64, width)).square().mean())
                yield


def batch_sizes():
    model, step = Gpt().cuda(), 0
    optimizer = torch.optim.AdamW(model.parameters())
    while True:
        x = tokens(4 << min(step // 150, 4), 96)
        logits = model(x)
        step_of(model, optimizer, F.cross_entropy(logits.flatten(0, 1), x.flatten()))
        step += 1
        yield


def teacher_comes_later():
    student, teacher, step = Mlp().cuda(), None, 0
    optimizer = torch.optim.AdamW(student.parameters())
    while True:
        if step == 250:
            teacher = Mlp(256, 40).cuda().eval()
        x = rows(random.randint(32, 128))
        loss = student(x).square().mean()
        if teacher is not None:
            with torch.no_grad():
                y = teacher(x)
            loss = loss + F.mse_loss(student(x), y)
        step_of(student, optimizer, loss)
        step += 1
        yield


def ever_larger_images():
    model, step = conv_net(24).cuda(), 0
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    while True:
        size = min(32 + 8 * (step // 60), 192)
        batch = images(8, size)
        features = model[:5](batch)
        step_of(model, optimizer, model[5:](features).square().mean())
        step += 1
        yield


def generates_now_and_then():
    model, step = Gpt().cuda(), 0
    optimizer = torch.optim.AdamW(model.parameters())
    while True:
        step_of(model, optimizer, model.loss(tokens(8, random.randint(16, 96))))
        step += 1
        if step % 100 == 0:
            with torch.no_grad():
                text, seen = tokens(4, 8), []
                for _ in range(random.randint(10, 40)):
                    logits = model(text)
                    seen.append(logits)
                    text = torch.cat([text, logits[:, -1:].argmax(-1)], 1)
        yield


def cache_of_a_few():
    """The last 64 masks; a longer one throws out the oldest."""
    model, masks = Gpt().cuda(), collections.OrderedDict()
    optimizer = torch.optim.AdamW(model.parameters())
    while True:
        n = random.randint(16, 400)
        if n not in masks:
            masks[n] = torch.ones(n, n, device="cuda").tril()
        masks.move_to_end(n)
        if 64 < len(masks):
            masks.popitem(last=False)
        step_of(model, optimizer, model.loss(tokens(2, n)) * masks[n].mean())
        yield


def recomputed():
    model = Gpt(128, 4).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    while True:
        x = tokens(4, random.randint(16, 256))
        hidden = model.embed(x)
        for layer in model.blocks.layers:
            hidden = checkpoint(layer, hidden, use_reentrant=False)
        step_of(model, optimizer, F.cross_entropy(model.head(hidden).flatten(0, 1), x.flatten()))
        yield


def graphs_of_any_size():
    """Sizes as they are in the wild: most are small, a few are very large."""
    first, second = nn.Linear(64, 128).cuda(), nn.Linear(128, 8).cuda()
    optimizer = torch.optim.Adam([*first.parameters(), *second.parameters()])
    while True:
        nodes = min(int(random.lognormvariate(6, 1.2)) + 8, 40_000)
        edges = torch.randint(0, nodes, (2, 4 * nodes), device="cuda")
        hidden = torch.relu(first(rows(nodes, 64)))
        gathered = torch.zeros_like(hidden).index_add_(0, edges[0], hidden[edges[1]])
        out = second(gathered)
        step_of(None, optimizer, out.square().mean())
        yield


def quasi_newton():
    model = Mlp(128, 2).cuda()
    optimizer = torch.optim.LBFGS(model.parameters(), history_size=60, max_iter=2)
    while True:
        x = rows(64, 128)

        def closure():
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            return loss

        optimizer.step(closure)
        yield


def statistics_of_late():
    model, losses, last = Mlp().cuda(), collections.deque(maxlen=500), []
    optimizer = torch.optim.AdamW(model.parameters())
    while True:
        out = model(rows(random.randint(16, 96)))
        loss = out.square().mean()
        step_of(model, optimizer, loss)
        losses.append(loss.detach())
        last.append(out.detach().mean(0))
        last = last[-300:]
        yield


def longest_first():
    model = Rnn().cuda()
    optimizer = torch.optim.Adam(model.parameters())
    while True:
        for n in sorted((random.randint(2, 90) for _ in range(150)), reverse=True):
            out, _ = model.rnn(rows(n * 32, 64).view(n, 32, 64))
            step_of(model, optimizer, model.head(out).square().mean())
            yield


def prefetched():
    model, stream = Mlp().cuda(), torch.cuda.Stream()
    optimizer = torch.optim.AdamW(model.parameters())
    following = rows(64)
    while True:
        batch = following
        with torch.cuda.stream(stream):
            following = torch.randn(random.randint(16, 256), 256).pin_memory().cuda(non_blocking=True)
        batch.record_stream(torch.cuda.current_stream())
        step_of(model, optimizer, model(batch).square().mean())
        torch.cuda.current_stream().wait_stream(stream)
        yield


def inner_loops():
    model = Mlp(128, 2).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    while True:
        learner = copy.deepcopy(model)
        inner = torch.optim.SGD(learner.parameters(), lr=0.01)
        for _ in range(random.randint(1, 6)):
            step_of(learner, inner, learner(rows(32, 128)).square().mean())
        with torch.no_grad():
            for own, other in zip(model.parameters(), learner.parameters()):
                own.grad = own - other
        optimizer.step()
        optimizer.zero_grad()
        yield


def validated_in_one():
    """All logits of a validation are gathered for a metric, and it grows with each epoch until the set is whole."""
    model, step, parts = Mlp(256, 3, 64).cuda(), 0, 4
    optimizer = torch.optim.AdamW(model.parameters())
    while True:
        step_of(model, optimizer, model(rows(random.randint(16, 96))).square().mean())
        step += 1
        if step % 120 == 0:
            parts = min(parts + 4, 40)
            with torch.no_grad():
                everything = torch.cat([model(rows(512)) for _ in range(parts)])
                everything.sort(0).values.mean().item()
        yield


PROGRAMS = {
    "rollouts": (rollouts, 512, 1),
    "pool_of_images": (pool_of_images, 1024, 1),
    "folds": (folds, 384, 1),
    "batch_sizes": (batch_sizes, 1024, 1),
    "teacher_comes_later": (teacher_comes_later, 384, 1),
    "ever_larger_images": (ever_larger_images, 1024, 1),
    "generates_now_and_then": (generates_now_and_then, 768, 1),
    "cache_of_a_few": (cache_of_a_few, 1024, 1),
    "recomputed": (recomputed, 768, 1),
    "graphs_of_any_size": (graphs_of_any_size, 1024, 1),
    "quasi_newton": (quasi_newton, 384, 1),
    "statistics_of_late": (statistics_of_late, 384, 1),
    "longest_first": (longest_first, 512, 1),
    "prefetched": (prefetched, 384, 1),
    "inner_loops": (inner_loops, 384, 1),
    "validated_in_one": (validated_in_one, 384, 1),
}
