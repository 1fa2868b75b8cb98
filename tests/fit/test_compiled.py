"""What the script has compiled stays compiled: a remedy looks at it uncompiled, and lets the compiler be."""

import pytest
from test_remedies import remedy, worst

SCRIPT = """
import functools
import sys
import torch
from torch import nn

arguments = dict({"loss": "own", "compiled": "model"}, **sys.modules["__main__"].arguments)
ran = []

def counts(graph, example):
    def run(*inputs):
        ran.append(graph)
        return graph(*inputs)
    return run

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(*(nn.Sequential(nn.Linear(6, 6), nn.ReLU()) for _ in range(3)))
        self.head = nn.Linear(6, 3)

    def forward(self, x, y):
        logits = self.head(self.blocks(x))
        return nn.functional.cross_entropy(logits, y) if arguments["loss"] == "own" else logits

torch.manual_seed(0)
model = Model()
run = model
if arguments["compiled"] == "model":
    run = torch.compile(model, backend=counts)
elif arguments["compiled"] == "function":
    class Step:
        def __init__(self):
            self.model = model

        def __call__(self, x, y):
            return self.model(x * 1, y)

    how = {
        "closes over it": lambda: torch.compile(lambda x, y: model(x * 1, y), backend=counts),
        "is given it": lambda: functools.partial(torch.compile(backend=counts)(lambda it, x, y: it(x * 1, y)), model),
        "is a method": lambda: torch.compile(Step().__call__, backend=counts),
    }
    run = how[arguments["how"]]()
elif arguments["compiled"] == "loss":
    nn.functional.cross_entropy = torch.compile(lambda x, y, own=nn.functional.nll_loss: own(x.log_softmax(1), y), backend=counts)
elif arguments["compiled"] == "in place":
    model.compile(backend=counts)
else:
    for i, it in enumerate(model.blocks):
        model.blocks[i] = torch.compile(it, backend=counts)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
result = []
for step in range(3):
    x, y = torch.randn(4, 6), torch.randint(3, (4,))
    ran.clear()
    loss = run(x, y)
    if arguments["loss"] != "own":
        loss = nn.functional.cross_entropy(loss, y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    result.append(loss.detach().reshape(1))
result += [p.detach().flatten() for p in model.parameters()]
# How often something compiled ran in the last step.
result.append(torch.tensor([float(len(ran))]))
"""


@pytest.mark.soak
@pytest.mark.parametrize("compiled", ["model", "in place", "blocks"])
@pytest.mark.parametrize("loss, each", [("own", 1), ("outside", 2)])
def test_parts_of_a_batch_run_what_was_compiled(trainer, compiled, loss, each):
    """Once for each part, and where the loss is outside, once more in backward."""
    arguments = {"compiled": compiled, "loss": loss}
    plain, changed = trainer.run(SCRIPT, arguments=arguments), trainer.run(SCRIPT, remedy("micro-batches", parts=2), arguments=arguments)
    assert worst(plain[:-1], changed[:-1]) < 1e-6
    n = 3 if compiled == "blocks" else 1
    assert plain[-1] == n
    assert changed[-1] == n * 2 * each


@pytest.mark.soak
@pytest.mark.parametrize("how", ["closes over it", "is given it", "is a method"])
@pytest.mark.parametrize("loss, each", [("own", 1), ("outside", 2)])
def test_a_model_that_a_compiled_function_calls_is_compiled_by_itself(trainer, loss, each, how):
    """Halfway traced, parts of a batch had wrong gradients."""
    arguments = {"compiled": "function", "loss": loss, "how": how}
    plain = trainer.run(SCRIPT, arguments=arguments)
    assert plain[-1] == 1
    parts = trainer.run(SCRIPT, remedy("micro-batches", parts=2), arguments=arguments)
    assert worst(plain[:-1], parts[:-1]) < 1e-6 and parts[-1] == 2 * each
    assert worst(plain[:-1], trainer.run(SCRIPT, "checkpoint", arguments=arguments)[:-1]) < 1e-6


def test_a_compiled_function_that_calls_no_model_stays_compiled(trainer):
    arguments = {"compiled": "loss", "loss": "outside"}
    plain, changed = trainer.run(SCRIPT, arguments=arguments), trainer.run(SCRIPT, "checkpoint", arguments=arguments)
    assert worst(plain, changed) < 1e-6 and plain[-1] == 1


def test_what_may_be_written_in_place_is_found_uncompiled(trainer):
    plain, changed = trainer.run(SCRIPT), trainer.run(SCRIPT, remedy("inplace-activations"))
    assert worst(plain[:-1], changed[:-1]) < 1e-6
    assert plain[-1] == changed[-1] == 1


MODES = """
import torch
from torch import nn

result = []
for choice in ({"mode": "reduce-overhead"}, {"mode": "max-autotune"}, {"options": {"triton.cudagraphs": True}}, {"mode": "default"}):
    model = torch.compile(nn.Linear(2, 2), **choice)
    config = model.get_compiler_config()
    result.append(torch.tensor([float(config["triton.cudagraphs"]), float(config["max_autotune"])]))
"""


@pytest.mark.soak
def test_parts_of_a_batch_are_not_recorded_in_cuda_graphs(trainer):
    """What a graph returned for one part would be overwritten by the next."""
    plain, changed = trainer.run(MODES), trainer.run(MODES, remedy("micro-batches", parts=2))
    assert [it.tolist() for it in plain] == [[1, 0], [1, 1], [1, 0], [0, 0]]
    assert [it.tolist() for it in changed] == [[0, 0], [0, 1], [0, 0], [0, 0]]
