"""Trainings without a leak, of batches that differ: nothing is to be said about them. Each is a generator that yields after
every step; `random` is seeded by the number that the bench gives, so one program is several runs."""

import collections
import copy
import random
import tempfile

import torch
import torch.nn.functional as F
from torch import nn

from models import Gpt, Mlp, Rnn, conv_net, images, rows, tokens


def step_of(model, optimizer, loss):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def rnn_lengths():
    model = Rnn().cuda()
    optimizer = torch.optim.Adam(model.parameters())
    while True:
        n = random.randint(4, 96)
        out = model(rows(n * 16, 64).view(n, 16, 64))
        step_of(model, optimizer, out)
        yield


def rnn_outputs_alive():
    """What the last step returned is still there when it ends: as large as its batch."""
    cell, head = nn.GRUCell(64, 128).cuda(), nn.Linear(128, 4).cuda()
    optimizer = torch.optim.Adam([*cell.parameters(), *head.parameters()])
    while True:
        h = torch.zeros(32, 128, device="cuda")
        outs = []
        for _ in range(random.randint(2, 24)):
            h = cell(rows(32, 64), h)
            outs.append(head(h))
        step_of(cell, optimizer, torch.stack(outs).square().mean())
        yield


def buckets():
    model = Gpt().cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    while True:
        x = tokens(8, random.choice([32, 64, 96, 128, 192]))
        logits = model(x)
        step_of(model, optimizer, F.cross_entropy(logits.flatten(0, 1), x.flatten()))
        yield


def sorted_lengths():
    """Each epoch from the shortest to the longest."""
    model = Gpt().cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    while True:
        for n in sorted(random.randint(8, 256) for _ in range(200)):
            x = tokens(8, n)
            logits = model(x)
            step_of(model, optimizer, F.cross_entropy(logits.flatten(0, 1), x.flatten()))
            yield


def curriculum():
    model, step = Gpt().cuda(), 0
    optimizer = torch.optim.AdamW(model.parameters())
    while True:
        x = tokens(8, min(16 + step // 4, 320))
        logits = model(x)
        step_of(model, optimizer, F.cross_entropy(logits.flatten(0, 1), x.flatten()))
        step += 1
        yield


def curriculum_stages():
    model, step = Rnn().cuda(), 0
    optimizer = torch.optim.Adam(model.parameters())
    while True:
        n = 8 * (1 + min(step // 150, 12))
        step_of(model, optimizer, model(rows(n * 16, 64).view(n, 16, 64)))
        step += 1
        yield


def gan():
    g, d = Mlp(64, 3, 64).cuda(), Mlp(64, 3, 1).cuda()
    of_g, of_d = torch.optim.Adam(g.parameters()), torch.optim.Adam(d.parameters())
    while True:
        n = random.randint(16, 128)
        fake = g(rows(n, 64))
        step_of(d, of_d, d(fake.detach()).mean() - d(rows(n, 64)).mean())
        step_of(g, of_g, -d(fake).mean())
        yield


def evaluated():
    model, step, every = Mlp().cuda(), 0, random.choice([25, 60, 110])
    optimizer = torch.optim.AdamW(model.parameters())
    best = None
    while True:
        step_of(model, optimizer, model(rows(random.randint(16, 128))).square().mean())
        step += 1
        if step % every == 0:
            model.eval()
            with torch.no_grad():
                results = [model(rows(256)) for _ in range(random.randint(2, 20))]
                score = torch.cat(results).square().mean().item()
            best = score if best is None else min(best, score)
            model.train()
        yield


def average_starts_late():
    model, average, step = Mlp().cuda(), None, 0
    optimizer = torch.optim.AdamW(model.parameters())
    while True:
        step_of(model, optimizer, model(rows(random.randint(16, 96))).square().mean())
        step += 1
        if step == 300:
            average = copy.deepcopy(model)
        if average is not None:
            with torch.no_grad():
                for a, p in zip(average.parameters(), model.parameters()):
                    a.lerp_(p, 0.01)
        yield


def accumulated():
    model, every = Gpt().cuda(), random.choice([2, 4, 8])
    optimizer = torch.optim.AdamW(model.parameters())
    while True:
        for _ in range(every):
            (model.loss(tokens(random.randint(2, 8), random.randint(16, 128))) / every).backward()
        optimizer.step()
        optimizer.zero_grad()
        yield


def scaled():
    model = Mlp().cuda()
    optimizer, scaler = torch.optim.AdamW(model.parameters()), torch.amp.GradScaler("cuda")
    while True:
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.float16):
            loss = model(rows(random.randint(16, 128))).square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        yield


def image_sizes():
    model = conv_net().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    while True:
        n = random.randint(2, 12)
        out = model(images(n, 8 * random.randint(3, 16)))
        step_of(model, optimizer, F.cross_entropy(out, torch.zeros(n, dtype=torch.long, device="cuda")))
        yield


def checkpoints():
    model, step = Gpt().cuda(), 0
    optimizer = torch.optim.AdamW(model.parameters())
    folder = tempfile.mkdtemp()
    while True:
        step_of(model, optimizer, model.loss(tokens(8, random.randint(16, 96))))
        step += 1
        if step % 150 == 0:
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, folder + "/last.pt")
        yield


def replay_buffer():
    """A list that is cut when it is long enough: it takes a tenth of the room."""
    model, buffer, most = Mlp().cuda(), [], random.randint(300, 900)
    optimizer = torch.optim.Adam(model.parameters())
    while True:
        buffer.append(rows(128))
        if most < len(buffer):
            buffer.pop(0)
        step_of(model, optimizer, model(random.choice(buffer)).square().mean())
        yield


def queue_of_fixed_length():
    """A `deque` that says how long it gets; full, it takes a third of the room."""
    model, buffer = Mlp().cuda(), collections.deque(maxlen=2500)
    optimizer = torch.optim.Adam(model.parameters())
    while True:
        buffer.append((rows(128), 1.0))
        step_of(model, optimizer, model(buffer[random.randrange(len(buffer))][0]).square().mean())
        yield


def cache_of_shapes():
    """A mask for each length that was seen."""
    model, masks = Gpt().cuda(), {}
    optimizer = torch.optim.AdamW(model.parameters())
    while True:
        n = random.randint(16, 320)
        if n not in masks:
            masks[n] = torch.ones(n, n, device="cuda").tril()
        step_of(model, optimizer, model.loss(tokens(4, n)) * masks[n].mean())
        yield


def losses_kept_for_an_epoch():
    model, losses = Mlp().cuda(), []
    optimizer = torch.optim.AdamW(model.parameters())
    while True:
        loss = model(rows(random.randint(16, 128))).square().mean()
        step_of(model, optimizer, loss)
        losses.append(loss.detach())
        if len(losses) == 200:
            torch.stack(losses).mean().item()
            losses.clear()
        yield


def layers_thaw():
    model, step = Mlp(512, 6).cuda(), 0
    layers = [it for it in model.layers if isinstance(it, nn.Linear)]
    for it in layers[:-1]:
        it.requires_grad_(False)
    optimizer = torch.optim.AdamW(layers[-1].parameters())
    while True:
        step_of(model, optimizer, model(rows(64, 512)).square().mean())
        step += 1
        if step % 200 == 0 and step // 200 < len(layers):
            thawed = layers[-1 - step // 200]
            thawed.requires_grad_(True)
            optimizer.add_param_group({"params": list(thawed.parameters())})
        yield


# Of each so many runs, with other seeds.
PROGRAMS = {
    "rnn_lengths": (rnn_lengths, 512, 2),
    "rnn_outputs_alive": (rnn_outputs_alive, 512, 2),
    "buckets": (buckets, 1024, 2),
    "sorted_lengths": (sorted_lengths, 1024, 2),
    "curriculum": (curriculum, 1024, 2),
    "curriculum_stages": (curriculum_stages, 512, 1),
    "gan": (gan, 384, 2),
    "evaluated": (evaluated, 512, 3),
    "average_starts_late": (average_starts_late, 384, 2),
    "accumulated": (accumulated, 768, 2),
    "scaled": (scaled, 384, 2),
    "image_sizes": (image_sizes, 768, 2),
    "checkpoints": (checkpoints, 768, 2),
    "replay_buffer": (replay_buffer, 1024, 2),
    "queue_of_fixed_length": (queue_of_fixed_length, 1024, 1),
    "cache_of_shapes": (cache_of_shapes, 512, 2),
    "losses_kept_for_an_epoch": (losses_kept_for_an_epoch, 384, 2),
    "layers_thaw": (layers_thaw, 512, 1),
}
