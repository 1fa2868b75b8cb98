"""`plimsoll run --survive`: a step that runs out is done again, and training ends with the numbers of an undisturbed run.

On the host, where numbers are real: a module in each model raises the error that CUDA would, in forward or in backward, so
often that the way which is to be seen is taken. What is refused ends as it would have without us.
"""

import pytest

PROGRAM = """
import functools
import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)
planted = dict(forward=0, backward=0)

def allocate(name, kind):
    if step == 2 and planted.get("at") == name and planted[kind]:
        planted[kind] -= 1
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacity of ...")

class Allocates(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, name):
        ctx.name = name
        allocate(name, "forward")
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        allocate(ctx.name, "backward")
        return gradient.clone(), None

class Large(nn.Module):
    def __init__(self, name):
        super().__init__()
        self.name = name

    def forward(self, x):
        return Allocates.apply(x, self.name)

planted.update(arguments["planted"])
models, result = [], []
exec(arguments["make"])
for step in range(4):
    x, more, y = torch.randn(8, 16), torch.randn(8, 16), torch.randint(0, 4, (8,))
    exec(arguments["step"])
    result.append(loss.detach().clone())
assert not planted[arguments["kind"]], "it did not run out so often"
for model in models:
    result += [it.detach() for it in model.parameters()] + list(model.buffers())
"""

TWO = """
body = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), Large("body"), nn.Linear(32, 32))
head = nn.Sequential(nn.Linear(32, 32), nn.Tanh(), Large("head"), nn.Linear(32, 4))
models = [body, head]
optimizer = torch.optim.AdamW([*body.parameters(), *head.parameters()], lr=1e-2)
"""
STEP = """
optimizer.zero_grad()
loss = F.cross_entropy(head(body(x)), y)
loss.backward()
optimizer.step()
"""
NORMS = TWO.replace("nn.ReLU(),", "nn.BatchNorm1d(32), nn.Dropout(0.3),")
COUNTS = """
class Counts(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls, self.seen = 0, []
        self.first, self.large, self.last = nn.Linear(16, 32), Large("body"), nn.Linear(32, 4)
        self.register_buffer("average", torch.zeros(32))

    def forward(self, x, y):
        self.calls += 1
        self.seen.append(self.calls)
        h = self.first(x) * (1 + 0.01 * self.calls)
        self.average.mul_(0.9).add_(h.detach().mean(0), alpha=0.1)
        out = self.last(self.large(h + self.average))
        return {"loss": F.cross_entropy(out, y), "logits": out}

model = Counts()
models = [model]
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
"""
CHECKPOINTS = """
class Checkpoints(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Sequential(nn.Linear(16, 32), nn.Dropout(0.2), Large("body"))
        self.b = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), Large("head"), nn.Linear(32, 4))

    def forward(self, x):
        return self.b(checkpoint(self.a, x, use_reentrant=REENTRANT))

model = Checkpoints()
models = [model]
optimizer = torch.optim.SGD(model.parameters(), 0.1)
"""
GAN = """
G = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), Large("body"), nn.Linear(32, 16))
D = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.LeakyReLU(), Large("head"), nn.Linear(32, 1))
models, of_g, of_d = [G, D], torch.optim.SGD(G.parameters(), 0.1), torch.optim.SGD(D.parameters(), 0.1)
"""
OLDER_AND_SHARED = """
class Shared(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter, self.layer, self.leave = nn.Linear(16, 32), nn.Linear(32, 32), nn.Linear(32, 4)
        self.large = Large("body")

    def block(self, x):
        return self.large(torch.tanh(self.layer(x)))

    def forward(self, x):
        x = self.enter(x)
        x = torch.tanh(self.layer(checkpoint(self.block, x, use_reentrant=True)))
        return self.leave(checkpoint(lambda it: torch.tanh(self.layer(it)), x, use_reentrant=True))

model = Shared()
models = [model]
optimizer = torch.optim.SGD(model.parameters(), 0.1)
"""
ASKS_TWICE = TWO.replace("body = ", """
class Squares(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.save_for_backward(x, factor)
        return factor * x * x

    @staticmethod
    def backward(ctx, gradient):
        by_x = 2 * ctx.saved_tensors[0] * ctx.saved_tensors[1] * gradient
        gradient.mul_(ctx.saved_tensors[0]).mul_(ctx.saved_tensors[0])
        return by_x, gradient.sum()

class Squared(nn.Module):
    def __init__(self):
        super().__init__()
        self.factor = nn.Parameter(torch.ones(()))

    def forward(self, x):
        return Squares.apply(x, self.factor * 1)

body = """).replace('nn.ReLU(), Large("body")', 'Squared(), Large("body")')
PROGRAMS = {
    "two models": (TWO, STEP),
    "two calls in one backward pass": (TWO, STEP.replace("F.cross_entropy(head(body(x)), y)", "(head(body(x)) - head(body(more))).pow(2).mean()")),
    "a penalty on weights": (
        TWO, STEP.replace("y)", "y) + sum(it.pow(2).sum() for it in (*body.parameters(), *head.parameters()))", 1)
    ),
    "layer by layer": (TWO, STEP.replace("head(body(x))", "functools.reduce(lambda h, it: it(h), [*body, *head], x)")),
    "an input with a gradient": (TWO, STEP.replace("loss = ", "x.requires_grad_(); loss = ").replace("optimizer.step()", "optimizer.step(); loss = loss + x.grad.sum()")),
    "older checkpoints of one layer": (OLDER_AND_SHARED, STEP.replace("head(body(x))", "model(x.requires_grad_())")),
    "a function that asks twice": (ASKS_TWICE, STEP),
    "batch-norm and dropout": (NORMS, STEP),
    "a model that counts": (COUNTS, STEP.replace("F.cross_entropy(head(body(x)), y)", 'model(x, y)["loss"]')),
    "accumulation": (
        TWO,
        "optimizer.zero_grad()\nfor it in (x, more):\n    loss = F.cross_entropy(head(body(it)), y) / 2\n    loss.backward()\noptimizer.step()",
    ),
    "two losses": (TWO, STEP.replace("loss.backward()", "loss.backward(retain_graph=True); (loss / 2).backward()")),
    "a gan": (
        GAN,
        "of_d.zero_grad(); fake = G(x); D(more).mean().backward()\n"
        "(-D(fake.detach()).mean()).backward(); of_d.step()\nof_g.zero_grad(); loss = D(fake).mean(); loss.backward(); of_g.step()",
    ),
    "checkpoints": (CHECKPOINTS.replace("REENTRANT", "False"), STEP.replace("head(body(x))", "model(x)")),
    "older checkpoints": (CHECKPOINTS.replace("REENTRANT", "True"), STEP.replace("head(body(x))", "model(x.requires_grad_())")),
    "half precision": (
        TWO,
        STEP.replace("loss = F", 'with torch.autocast("cpu", dtype=torch.bfloat16):\n    loss = F').replace("body(x))", "body(x)).float()"),
    ),
}


def trained(trainer, name, survive, at="", kind="forward", times=0):
    make, step = PROGRAMS[name]
    arguments = {"make": make, "step": step, "kind": kind, "planted": {"at": at, kind: times}}
    return trainer.run(PROGRAM, arguments=arguments, survive=survive)


def largest_difference(result, other):
    assert isinstance(result, list) and len(result) == len(other), result
    return max(float((a.double() - b.double()).abs().max()) for a, b in zip(result, other))


@pytest.mark.soak
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_numbers_are_those_of_an_undisturbed_run(trainer, name):
    alone = trained(trainer, name, survive=False)
    assert largest_difference(trained(trainer, name, survive=True), alone) == 0
    for at in ("body", "head") if 'Large("head")' in PROGRAMS[name][0] else ("body",):
        # Once: it is made again as it is, or with what backward needs on the host. Twice: on the host.
        for kind, times in (("forward", 1), ("forward", 2), ("backward", 1)):
            assert largest_difference(trained(trainer, name, True, at, kind, times), alone) == 0, (at, kind, times)


def test_a_graph_that_is_used_up_is_not_used_again(trainer):
    """It is kept so that backward can be made again, and the script must not see that."""
    arguments = {"make": TWO, "step": STEP + "loss.backward()", "kind": "forward", "planted": {}}
    for survive in (False, True):
        assert trainer.run(PROGRAM, arguments=arguments, survive=survive).startswith("RuntimeError: Trying to backward through the graph a second time")


@pytest.mark.parametrize("kind, times", [("forward", 3), ("backward", 2)])
def test_in_parts_they_are_the_same_up_to_rounding(trainer, kind, times):
    alone = trained(trainer, "two models", survive=False)
    for at in ("body", "head"):
        assert largest_difference(trained(trainer, "two models", True, at, kind, times), alone) < 1e-6


@pytest.mark.matrix(1)
@pytest.mark.parametrize(
    "name, kind, times",
    [("what a function draws", "forward", 3), ("what a function draws", "backward", 2), ("dropout", "forward", 3), ("dropout", "backward", 3)],
)
def test_parts_draw_what_the_whole_would_have_drawn(trainer, name, kind, times):
    alone = trained(trainer, name, survive=False)
    assert largest_difference(trained(trainer, name, True, "body", kind, times), alone) < 1e-6


def test_what_was_done_in_parts_runs_out_once_more(trainer):
    """The parts are checkpoints; a pass that came to one of them is made again."""
    results = []
    for planted in ({}, {"at": "body", "forward": 3, "backward": 1}):
        arguments = {"make": TWO, "step": STEP, "kind": "backward", "planted": {"forward": 0, "backward": 0, **planted}}
        results.append(trainer.run(PROGRAM, arguments=arguments, survive=True))
    assert largest_difference(*results) < 1e-6


def test_several_calls_are_done_in_parts(trainer):
    """Each by itself; what they share gets its gradient from both. Adam would make much of a gradient that is zero but for rounding."""
    make, step = PROGRAMS["two calls in one backward pass"]
    results = []
    for planted in ({}, {"at": "body", "backward": 2}, {"at": "head", "backward": 2}):
        arguments = {"make": make.replace("AdamW", "SGD"), "step": step, "kind": "backward", "planted": planted}
        results.append(trainer.run(PROGRAM, arguments=arguments, survive=True))
    assert largest_difference(results[1], results[0]) < 1e-6 > largest_difference(results[2], results[0])


FUNCTIONAL = TWO + """
class Drops(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = body

    def forward(self, x):
        x = self.body(x)
        return F.dropout(x, 0.2, self.training) + self.training * (0.1 * torch.randn_like(x) + torch.rand(len(x), 1) + 0.1 * torch.randn(1, 32))

body = Drops()
"""
ATTENTION = FUNCTIONAL.replace("F.dropout(x, 0.2, self.training)", "F.scaled_dot_product_attention(*3 * [x.view(-1, 1, 4, 8)], dropout_p=0.2).flatten(1)")
PROGRAMS["what a function draws"] = (FUNCTIONAL, STEP)
TIMES = FUNCTIONAL.replace("F.dropout(x, 0.2, self.training)", "F.dropout(x.reshape(-1, 8), 0.2, self.training).reshape(x.shape)")
PROGRAMS["dropout of times"] = (TIMES, STEP)
PROGRAMS["dropout in attention"] = (ATTENTION, STEP)
DRAWS = NORMS.replace("nn.BatchNorm1d(32), ", "").replace("nn.Tanh(),", "nn.Tanh(), nn.AlphaDropout(0.1),")
PROGRAMS["dropout"] = (DRAWS, STEP)
REFUSED = {
    "dropout for samples and times at once": ("dropout of times", "body", "forward", 3),
    "dropout for samples and times at once, in backward": ("dropout of times", "body", "backward", 2),
    "attention has a dropout inside": ("dropout in attention", "body", "forward", 3),
    "attention has a dropout inside, in backward": ("dropout in attention", "body", "backward", 3),
    "batch-norm would see parts, in forward": ("batch-norm and dropout", "body", "forward", 3),
    "batch-norm would see parts": ("a gan", "head", "backward", 3),
}


@pytest.mark.matrix(2)
@pytest.mark.parametrize("why", REFUSED)
def test_what_would_change_the_numbers_is_not_done(trainer, why):
    name, at, kind, times = REFUSED[why]
    assert "CUDA out of memory" in trained(trainer, name, True, at, kind, times)


ENDS = {
    "an optimizer inside backward": """
if step == 0:
    for it in (*body.parameters(), *head.parameters()):
        it.register_post_accumulate_grad_hook(lambda it, one=torch.optim.SGD([it], 0.1): [one.step(), one.zero_grad()] and None)
loss = F.cross_entropy(head(body(x)), y); loss.backward()
""",
    "gradients of gradients": """
out = head(body(x.requires_grad_())); (gradient,) = torch.autograd.grad(out.sum(), x, create_graph=True)
loss = out.pow(2).mean() + gradient.pow(2).mean(); loss.backward()
""",
}


@pytest.mark.matrix(3)
@pytest.mark.parametrize("what", ENDS)
def test_what_cannot_be_done_again_ends_as_ever(trainer, what):
    arguments = {"make": TWO, "step": ENDS[what], "kind": "backward", "planted": {"at": "head", "backward": 1}}
    assert trainer.run(PROGRAM, arguments=arguments, survive=True).startswith("OutOfMemoryError: CUDA out of memory")
    # And without an error nothing is otherwise.
    arguments["planted"] = {}
    alone, beside = (trainer.run(PROGRAM, arguments=arguments, survive=it) for it in (False, True))
    assert largest_difference(beside, alone) == 0


@pytest.mark.matrix(1)
@pytest.mark.parametrize("kind, times", [("forward", 1), ("forward", 2), ("backward", 1)])
def test_a_loss_is_made_again_too(trainer, kind, times):
    """In forward and in backward, which then goes on through models that had let go of what they saved."""
    make = TWO + "\nclass Loss(nn.Module):\n    def forward(self, out, y):\n        return F.cross_entropy(Allocates.apply(out, 'loss'), y)\ncriterion = Loss()"
    step = STEP.replace("F.cross_entropy", "criterion")
    results = []
    for planted in ({}, {"at": "loss", kind: times}):
        arguments = {"make": make, "step": step, "kind": kind, "planted": planted}
        results.append(trainer.run(PROGRAM, arguments=arguments, survive=bool(planted)))
    assert largest_difference(*results) == 0


def test_nothing_is_kept_longer_than_autograd_keeps_it(trainer):
    """What a call is given goes with its graph, and a loss that is kept after backward does not keep it."""
    step = STEP + """
import gc, weakref
gc.disable()
given = weakref.ref(x)
del x
gone_after_backward = given() is None
x = torch.randn(8, 16)
given, out = weakref.ref(x), head(body(x))
del x, out
assert gone_after_backward and given() is None
gc.enable()
"""
    arguments = {"make": TWO, "step": step, "kind": "forward", "planted": {}}
    assert isinstance(trainer.run(PROGRAM, arguments=arguments, survive=True), list)


def test_a_call_without_gradients_gets_the_room_of_what_backward_needs(trainer):
    """And counts its batch once: it is in training mode, with batch-norm."""
    make = TWO + '\nteacher = nn.Sequential(nn.Linear(16, 16), nn.BatchNorm1d(16), Large("teacher"))\nmodels.append(teacher)'
    step = STEP.replace("loss = F", "out = head(body(x))\nwith torch.no_grad():\n    teacher(more)\nloss = F").replace("head(body(x)), y", "out, y")
    results = []
    for planted in ({}, {"at": "teacher", "forward": 1}):
        arguments = {"make": make, "step": step, "kind": "forward", "planted": planted}
        results.append(trainer.run(PROGRAM, arguments=arguments, survive=bool(planted)))
    assert largest_difference(*results) == 0
