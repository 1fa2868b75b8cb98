"""Leaks that were written when the watch was done. As in `leaks.py`, the line that keeps what grows ends with `# leak`."""

import gc
import queue
import random
import threading

import torch
from torch import nn

from leaks import train
from models import Gpt, Mlp, Rnn, conv_net, images, rows, tokens

KIB = 1024


def errors_with_their_frames():
    """Every fourth step a batch is refused, and the error is kept, with the frame that made it."""
    model, errors = Mlp().cuda(), []

    def checked(n):
        batch = torch.randn(n, 256, device="cuda")  # leak
        if n % 4 == 0:
            raise ValueError("bad batch")
        return batch

    step = 0

    def loss_of():
        nonlocal step
        step += 1
        try:
            batch = checked(256 + step % 4)
        except ValueError as error:
            errors.append(error)
            batch = rows(64)
        return model(batch).square().mean()

    yield from train(model, loss_of)


class Keeping(torch.autograd.Function):
    kept = []

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 1.5

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        Keeping.kept.append((x * grad)[:32].clone())  # leak
        return grad * 1.5


def function_with_a_list_32k():
    model = Mlp().cuda()
    yield from train(model, lambda: Keeping.apply(model.layers[0](rows(64))).square().mean())


class Node:
    def __init__(self, value):
        self.value, self.me = value, self


def cycles_without_collector_96k():
    gc.disable()
    model = conv_net().cuda()
    for loss in train(model, lambda: model(images(8, 24)).square().mean(), optimizer=torch.optim.SGD):
        Node(torch.randn(96 * KIB // 4, device="cuda"))  # leak
        yield loss


def bank_of_parameters():
    """A new entry in each step, and Adam's state for it."""
    model = Mlp().cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    while True:
        entry = nn.Parameter(torch.randn(16 * KIB // 4, device="cuda"))  # leak
        optimizer.add_param_group({"params": [entry]})
        optimizer.zero_grad()
        (model(rows(32)).square().mean() + entry.square().mean()).backward()
        optimizer.step()  # leak
        yield


def generators_that_wait_48k():
    model, waiting = Gpt().cuda(), []

    def later():
        value = torch.randn(48 * KIB // 4, device="cuda")  # leak
        yield 0
        yield value.sum()

    for loss in train(model, lambda: model.loss(tokens(4, random.randint(16, 64)))):
        it = later()
        next(it)
        waiting.append(it)
        yield loss


def loader_that_runs_ahead():
    """A thread fills a queue faster than the training empties it: two batches for each step."""
    model, batches = Mlp().cuda(), queue.Queue()
    asked = queue.Queue()

    def fill():
        while asked.get():
            for _ in range(2):
                batches.put(torch.randn(96, 256, device="cuda"))  # leak

    threading.Thread(target=fill, daemon=True).start()

    def loss_of():
        asked.put(True)
        return model(batches.get()).square().mean()

    yield from train(model, loss_of)


def weights_every_25():
    model, best = Mlp(128, 3).cuda(), []
    step = 0
    for loss in train(model, lambda: model(rows(random.randint(16, 96), 128)).square().mean()):
        step += 1
        if step % 25 == 0:
            best.append({name: it.detach().clone() for name, it in model.state_dict().items()})  # leak
        yield loss


def states_of_any_length():
    """What is kept is as long as the batch, and batches differ by twelve times."""
    model, states = Rnn().cuda(), []

    def loss_of():
        n = random.randint(4, 48)
        out, _ = model.rnn(rows(n * 16, 64).view(n, 16, 64))
        states.append(out.detach().mean(1) * 2)  # leak
        return model.head(out).square().mean()

    yield from train(model, loss_of)


PROGRAMS = {
    "errors_with_their_frames": (errors_with_their_frames, 512),
    "function_with_a_list_32k": (function_with_a_list_32k, 512),
    "cycles_without_collector_96k": (cycles_without_collector_96k, 768),
    "bank_of_parameters": (bank_of_parameters, 512),
    "generators_that_wait_48k": (generators_that_wait_48k, 512),
    "loader_that_runs_ahead": (loader_that_runs_ahead, 768),
    "weights_every_25": (weights_every_25, 256),
    "states_of_any_length": (states_of_any_length, 256),
}
