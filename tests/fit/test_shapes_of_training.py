"""Shapes of training that people have: a loss of one's own beside the model's, checkpoints and frozen weights of the script's own,
compiled models. The same numbers with and without each remedy that could meet them."""

import pytest
from test_remedies import remedy, worst

PROGRAM = """
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

a = dict(loss="own", dropout=0.0, reentrant=None, frozen=False, hook=False, embeds=False, compiled=None, output="dict", change=0, second=False,
         autocast=False, shorter=False)
a.update(arguments)
torch.manual_seed(0)
WIDTH, VOCABULARY = 8, 11

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 16), nn.Linear(16, WIDTH)
        self.low, self.high, self.drop = nn.Linear(WIDTH, 2), nn.Linear(2, WIDTH), nn.Dropout(a["dropout"])

    def forward(self, x):
        y = self.norm(x)
        return x + self.drop(self.down(F.gelu(self.up(y))) + self.high(self.low(y)))

class Output(dict):
    pass

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.blocks = nn.Embedding(VOCABULARY, WIDTH), nn.ModuleList(Block() for _ in range(3))
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, ids=None, labels=None, embeds=None):
        x = self.embed(ids) if embeds is None else embeds
        for block in self.blocks:
            if a["reentrant"] is None or not self.training:
                x = block(x)
            else:
                x = checkpoint(block, x, use_reentrant=a["reentrant"])
            if a["shorter"]:  # Blocks of one class, each with another size.
                x = x[:, 1:]
        labels = labels if labels is None else labels[:, -x.size(1) :]
        logits = self.head(x)
        found = {"loss": None, "logits": logits, "nll": None}
        if labels is not None:
            found["nll"] = F.cross_entropy(logits.transpose(1, 2), labels, reduction="none")
            found["loss"] = found["nll"].mean()
        found = {k: v for k, v in found.items() if v is not None}
        return found if a["output"] == "dict" else tuple(found.values())

model = Model().double()
outside = nn.Embedding(VOCABULARY, WIDTH).double()
if a["frozen"]:
    for name, it in model.named_parameters():
        it.requires_grad_("low" in name or "high" in name)
    outside.requires_grad_(False)
if a["hook"]:
    model.embed.register_forward_hook(lambda module, given, out: out.requires_grad_(True))
run = model
if a["compiled"] == "model":
    run = torch.compile(model, backend="aot_eager")
elif a["compiled"] == "in place":
    model.compile(backend="aot_eager")
elif a["compiled"] == "blocks":
    for i, it in enumerate(model.blocks):
        model.blocks[i] = torch.compile(it, backend="aot_eager")
elif a["compiled"] == "forwards":
    for it in model.blocks:
        it.forward = torch.compile(it.forward, backend="aot_eager")
trained = [p for p in [*model.parameters(), *outside.parameters()] if p.requires_grad]
optimizer = torch.optim.SGD(trained, lr=0.1, momentum=0.9)
weights = torch.linspace(0.5, 2, VOCABULARY).double()
result = []
for step in range(6):
    ids = torch.randint(VOCABULARY, (7, 5))
    given = {"embeds": outside(ids)} if a["embeds"] else {"ids": ids}
    with torch.autocast("cpu", enabled=a["autocast"]):
        out = run(**given, labels=ids) if a["loss"] != "outside" else run(**given)
        loss, logits = (out.get("loss"), out["logits"]) if isinstance(out, dict) else (out[0], out[1 if len(out) > 1 else 0])
        ids = ids[:, -logits.size(1) :]
        kind = a["loss"] if step >= a["change"] else "model"
        if kind == "own":
            loss = (out["nll"] if isinstance(out, dict) else out[2]).sum() / 5
        elif kind == "weighted":
            loss = F.cross_entropy(logits.transpose(1, 2), ids, weight=weights)
        elif kind == "both":
            logits *= 1.0
            loss = loss + 0.1 * logits.logsumexp(-1).pow(2).mean()
        elif kind == "outside":
            loss = F.cross_entropy(logits.transpose(1, 2), ids)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(trained, 1.0)
    optimizer.step()
    result += [loss.detach(), logits.detach()]
result += [p.detach() for p in trained]
"""
HELD = [("micro-batches",), ("checkpoint",), ("checkpoint", "micro-batches")]


def same(trainer, remedies, **arguments):
    plain = trainer.run(PROGRAM, arguments=arguments)
    return worst(plain, trainer.run(PROGRAM, *map(remedy, remedies), arguments=arguments)) < 1e-9


@pytest.mark.matrix(3)
@pytest.mark.parametrize("output", ["dict", "tuple"])
@pytest.mark.parametrize("loss", ["model", "own", "weighted", "both", "outside"])
def test_a_loss_of_the_scripts_own(trainer, loss, output):
    """Whatever the script makes of what the model returns beside its loss."""
    assert same(trainer, ["micro-batches"], loss=loss, output=output)


@pytest.mark.matrix(2)
@pytest.mark.parametrize("reentrant", [False, pytest.param(True, marks=pytest.mark.soak)])
@pytest.mark.parametrize("frozen, hook", [(False, False), (True, True), (True, False)])
@pytest.mark.parametrize("loss", ["model", "outside"])
@pytest.mark.parametrize("remedies", HELD)
def test_checkpoints_of_the_scripts_own(trainer, remedies, loss, frozen, hook, reentrant):
    if reentrant and frozen and not hook:
        pytest.skip("trains nothing")
    assert same(trainer, remedies, loss=loss, frozen=frozen, hook=hook, reentrant=reentrant)


@pytest.mark.matrix(2)
@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("loss", [pytest.param("model", marks=pytest.mark.soak), "outside", pytest.param("both", marks=pytest.mark.soak)])
@pytest.mark.parametrize("remedies", HELD)
def test_embeddings_from_outside(trainer, remedies, loss, frozen):
    assert same(trainer, remedies, loss=loss, embeds=True, frozen=frozen)


SLOW = [pytest.param(*it, marks=pytest.mark.soak) for it in (("model", "outside"), ("in place", "model"))]


@pytest.mark.soak
@pytest.mark.parametrize("compiled, loss", [("blocks", "both"), ("forwards", "outside"), *SLOW])
def test_compiled(trainer, loss, compiled):
    assert same(trainer, ["checkpoint", "micro-batches"], loss=loss, compiled=compiled)


@pytest.mark.soak
@pytest.mark.parametrize("remedies", [pytest.param(("micro-batches",), marks=pytest.mark.soak), ("checkpoint",)])
def test_compiled_blocks_of_several_sizes(trainer, remedies):
    """The compiler makes another program for the second size, which serves the first one as well: what runs again is not what ran."""
    assert same(trainer, remedies, loss="outside", compiled="model", shorter=True)


DRAWS = """
import torch
class Mask(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight, self.drop = torch.nn.Parameter(torch.ones(100).double()), torch.nn.Dropout(0.5)
    def forward(self, x):
        out = self.drop(self.weight) * x
        return {"loss": out.mean() if self.training else self.weight.mean() * x.mean(), "out": out}
torch.manual_seed(0)
model, result = Mask(), []
for _ in range(3):
    model.zero_grad()
    out = model(torch.ones(6, 1).double())["out"]
    out.sum().backward()
    result += [model.weight.grad - out.detach().sum(0)]
result = [torch.stack(result).abs().sum() + 1]
"""


def test_what_is_drawn_is_drawn_again(trainer):
    """The weights that dropout kept have the gradient, whether the parts ran again because of that loss or were to from the start."""
    assert trainer.run(DRAWS, remedy("micro-batches"))[0] == 1


def test_the_gradient_of_a_gradient_is_refused(trainer):
    program = PROGRAM.replace("loss.backward()", "loss.backward(create_graph=True)")
    answer = trainer.run(program, remedy("micro-batches"), arguments={"loss": "model"})
    assert isinstance(answer, str) and "it computes the gradient of a gradient" in answer, answer
