"""Small trainings, each with a leak planted in it: a tensor, a graph, a cache, a hook or a closure that stays after every
step. A program is a generator that yields after each step. The line that keeps what grows ends with `# leak`."""

import collections
import functools

import torch
import torch.nn.functional as F
from torch import nn

from models import Gpt, Mlp, Rnn, conv_net, images, rows, tokens

KIB = 1024


def train(model, loss_of, lr=1e-3, optimizer=torch.optim.AdamW):
    optimizer = optimizer(model.parameters(), lr=lr)
    while True:
        optimizer.zero_grad()
        loss = loss_of()
        loss.backward()
        optimizer.step()
        yield loss


def outputs_16k():
    model, kept = Mlp().cuda(), []

    def loss_of():
        out = model(rows(64))  # leak
        kept.append(out.detach()[:, :64])
        return out.square().mean()

    yield from train(model, loss_of)


def losses_with_graph():
    model, total = Mlp(width=128).cuda(), [0.0]
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    while True:
        optimizer.zero_grad()
        out = model(rows(48, 128))  # leak
        loss = out.square().mean()
        # The graph of the log of the loss is kept: what backward frees is gone, what it does not stays.
        total[0] = total[0] + (out * out.exp()).mean()  # leak
        loss.backward(retain_graph=True)
        optimizer.step()
        yield loss


def metrics_dict_32k():
    model, history = Gpt().cuda(), collections.defaultdict(list)
    x = tokens(8, 64)
    step = 0
    for loss in train(model, lambda: model.loss(x)):
        history[step % 7].append(torch.randn(32 * KIB // 4, device="cuda"))  # leak
        step += 1
        yield loss


def hook_64k():
    model, seen = Mlp().cuda(), []

    def hook(module, inputs, output):
        seen.append(output.detach().clone()[:64])  # leak

    model.layers[2].register_forward_hook(hook)
    yield from train(model, lambda: model(rows(64)).square().mean())


def gradient_hook_256k():
    model, seen = Mlp().cuda(), []
    model.layers[0].weight.register_hook(lambda grad: seen.append(grad.clone()))  # leak
    yield from train(model, lambda: model(rows(64)).square().mean())


def cache_by_sample_128k():
    model, cache = Mlp().cuda(), {}
    sample = 0

    def loss_of():
        nonlocal sample
        sample += 1
        if sample not in cache:
            cache[sample] = torch.sin(rows(128))  # leak
        return model(cache[sample]).square().mean()

    yield from train(model, loss_of)


def closures_64k():
    model, callbacks = Rnn().cuda(), []

    def later(value):
        return lambda: value.mean()

    lengths = [16, 24, 32]
    step = 0
    for loss in train(model, lambda: model(rows(16 * lengths[step % 3], 64).view(lengths[step % 3], 16, 64))):
        callbacks.append(later(torch.randn(64 * KIB // 4, device="cuda")))  # leak
        step += 1
        yield loss


def partials_16k():
    model, jobs = conv_net().cuda(), []
    for loss in train(model, lambda: F.cross_entropy(model(images(8, 32)), torch.zeros(8, dtype=torch.long, device="cuda"))):
        jobs.append(functools.partial(torch.add, torch.randn(16 * KIB // 4, device="cuda")))  # leak
        yield loss


def evaluation_results_every_20():
    model, results = Mlp().cuda(), []
    step = 0
    for loss in train(model, lambda: model(rows(64)).square().mean()):
        step += 1
        if step % 20 == 0:
            model.eval()
            with torch.no_grad():
                results.append(model(rows(512)))  # leak
            model.train()
        yield loss


def joined_each_step():
    model, features = Mlp().cuda(), torch.zeros(1, 256, device="cuda")
    for loss in train(model, lambda: model(rows(64)).square().mean()):
        features = torch.cat([features, rows(64)])  # leak
        yield loss


def module_history_1m():
    model = Gpt().cuda()
    model.history = []
    for loss in train(model, lambda: model.loss(tokens(8, 48))):
        model.history.append(torch.randn(1024 * KIB // 4, device="cuda"))  # leak
        yield loss


def queue_without_end_32k():
    model, queue = Mlp().cuda(), collections.deque()
    for loss in train(model, lambda: model(rows(48)).square().mean(), optimizer=torch.optim.SGD):
        queue.append((0, torch.randn(32 * KIB // 4, device="cuda")))  # leak
        yield loss


# Name: (the program, the room in MiB).
PROGRAMS = {
    "outputs_16k": (outputs_16k, 384),
    "losses_with_graph": (losses_with_graph, 512),
    "metrics_dict_32k": (metrics_dict_32k, 512),
    "hook_64k": (hook_64k, 768),
    "gradient_hook_256k": (gradient_hook_256k, 1024),
    "cache_by_sample_128k": (cache_by_sample_128k, 1024),
    "closures_64k": (closures_64k, 512),
    "partials_16k": (partials_16k, 384),
    "evaluation_results_every_20": (evaluation_results_every_20, 512),
    "joined_each_step": (joined_each_step, 512),
    "module_history_1m": (module_history_1m, 2048),
    "queue_without_end_32k": (queue_without_end_32k, 512),
}
