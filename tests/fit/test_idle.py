"""Which remedies have nothing to do in a program, found by running two steps of it and not by reading it."""

import pytest

LOOK = """
import contextlib
import torch
from torch import nn
from plimsoll_agent.remedies.support.hooks import Hooks
from plimsoll_agent.survey import sites

class Recording:
    def write(self, kind, **more):
        if kind == "sites":
            result.update(more["idle"])
    def note(self, code, text):
        raise AssertionError(text)

result = {}
hooks = Hooks(torch, Recording())
sites.apply(torch, hooks, Recording())
hooks.install()

a = dict(around="", inside="", wrapped=False, dtype="float32", clip=False, scaler=None, optimizer="Adam", options={}, none=True,
         checkpoint="", compiled=False, batch=4, conv=False, last=False, blocks=3, classes=5, lazy=False)
a.update(arguments)
half = lambda on: torch.autocast("cpu", dtype=torch.bfloat16) if on else contextlib.nullcontext()

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)
    def forward(self, x):
        return x + self.b(self.a(x).relu())

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3) if a["conv"] else nn.Conv2d(2, 4, 3) if a["last"] else None
        self.blocks, self.head = nn.ModuleList(Block() for _ in range(a["blocks"])), nn.LazyLinear(a["classes"]) if a["lazy"] else nn.Linear(8, a["classes"])
    def forward(self, x):
        with half(a["inside"]):
            if self.conv is not None:
                x = x + self.conv(torch.ones(len(x), self.conv.in_channels, 4, 4)).mean()
            if a["checkpoint"] == "pieces":
                run = lambda x: self.blocks[2](self.blocks[1](self.blocks[0](x)))
                x = torch.utils.checkpoint.checkpoint(run, x, use_reentrant=False)
            for i, block in enumerate(self.blocks if a["checkpoint"] != "pieces" else ()):
                if a["checkpoint"] in ("all", "reentrant") or a["checkpoint"] == "some" and i:
                    x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=a["checkpoint"] == "reentrant")
                else:
                    x = block(x)
            if a["inside"] == "but the head":
                with torch.autocast("cpu", enabled=False):
                    return self.head(x.float())
            return self.head(x)

model = Net().to(getattr(torch, a["dtype"]))
if a["last"]:
    model.to(memory_format=torch.channels_last)
if a["wrapped"]:  # As accelerate does it.
    model.forward = half(True)(model.forward)
model(torch.zeros(2, 8)) if a["lazy"] else None
if a["compiled"]:
    model = torch.compile(model, backend="aot_eager")
optimizer = getattr(torch.optim, a["optimizer"])(model.parameters(), lr=0.01, **a["options"])
scaler = a["scaler"] is not None and torch.amp.GradScaler("cpu", enabled=a["scaler"])
for _ in range(3):
    x = torch.randn(a["batch"], 8, dtype=getattr(torch, a["dtype"]), requires_grad=True)
    with half(a["around"]):
        loss = nn.functional.cross_entropy(model(x).float(), torch.zeros(a["batch"], dtype=torch.long))
    optimizer.zero_grad(set_to_none=a["none"])
    loss.backward()
    if a["clip"]:
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
"""

ALWAYS = {"attention", "inplace-activations", "optimizer-8bit"}
PLAIN = ALWAYS | {"set-to-none", "chunked-loss", "channels-last"}
AUTOCAST = {"autocast", "autocast-fp16"}


@pytest.mark.matrix(3)
@pytest.mark.parametrize(
    ("arguments", "more", "less"),
    [
        ({}, set(), set()),
        ({"lazy": True}, set(), set()),
        ({"around": "the whole"}, AUTOCAST, set()),
        ({"inside": "forward"}, AUTOCAST, set()),
        ({"wrapped": True}, AUTOCAST, set()),
        ({"inside": "but the head"}, set(), set()),
        ({"dtype": "bfloat16"}, AUTOCAST, set()),
        ({"scaler": True}, {"autocast-fp16", "optimizer-in-backward"}, set()),
        ({"scaler": False}, set(), set()),
        ({"clip": True}, {"optimizer-in-backward"}, set()),
        ({"options": {"fused": True}}, {"fused", "foreach"}, set()),
        ({"options": {"foreach": False}}, {"foreach"}, set()),
        ({"optimizer": "RMSprop"}, {"fused"}, set()),
        ({"optimizer": "Adagrad"}, {"fused"}, set()),
        ({"optimizer": "SGD"}, {"optimizer-offload"}, set()),
        ({"optimizer": "SGD", "options": {"momentum": 0.9}}, set(), set()),
        ({"none": False}, set(), {"set-to-none"}),
        ({"checkpoint": "all"}, {"checkpoint"}, set()),
        ({"checkpoint": "reentrant"}, {"checkpoint"}, set()),
        ({"checkpoint": "some"}, set(), set()),
        ({"checkpoint": "pieces"}, set(), set()),
        ({"blocks": 0}, {"checkpoint"}, set()),
        ({"batch": 1}, {"micro-batches"}, set()),
        ({"conv": True}, set(), {"channels-last"}),
        ({"last": True}, set(), set()),
        ({"classes": 2 << 20}, set(), {"chunked-loss"}),
    ],
)
def test_what_has_nothing_to_do(trainer, arguments, more, less):
    found = trainer.run(LOOK, arguments=arguments)
    assert not isinstance(found, str), found
    assert set(found) - ALWAYS == (PLAIN | more) - less - ALWAYS


@pytest.mark.soak
def test_an_autocast_around_a_compiled_model_is_seen(trainer):
    for around in ("", "the whole"):
        found = trainer.run(LOOK, arguments={"compiled": True, "around": around})
        assert not isinstance(found, str), found
        assert AUTOCAST <= set(found) if around else not AUTOCAST & set(found)
