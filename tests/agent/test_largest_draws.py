"""A script that draws sizes by itself draws the largest first, on a phantom."""

import ast

import pytest

SCRIPT = """
import random, numpy
import torch
from torch import nn

random.seed(3)
numpy.random.seed(3)
own = random.Random(5)
net = nn.Conv2d(1, 4, 3, padding=1).cuda()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
drawn = []
LEFT_ALONE
for step in range(8):
    size = {draw}
    drawn.append(size)
    height, width = size if isinstance(size, tuple) else (size, size)
    net(torch.zeros(2, 1, height, width, device="cuda")).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
print([drawn, Own.asked, random.random(), own.random(), float(numpy.random.rand())])
"""

DRAWS = {
    "random.choice(range(32, 129, 32))": (128, "32 to 128"),
    "random.randint(2, 5) * 32": (160, "2 to 5"),
    "own.choice([64, 96, 48])": (96, "48 to 96"),
    "own.randrange(16, 65, 16)": (64, "16 to 64"),
    "random.choice([(32, 64), (64, 96), (96, 32)])": ((64, 96), "32x64 to 64x96"),
    "int(numpy.random.choice([32, 64, 48]))": (64, "32 to 64"),
    "int(numpy.random.randint(16, 33))": (32, "16 to 32"),
}


@pytest.mark.matrix(2)
@pytest.mark.parametrize("draw", DRAWS)
def test_the_largest_comes_first_and_the_generators_go_on_as_without_us(run, draw):
    largest, of = DRAWS[draw]
    process, (drawn, *after) = ran(run, draw, "1")
    _, (by_itself, *as_without) = ran(run, draw, "")
    assert drawn[0] == largest == drawn[2], drawn
    assert drawn[1] == by_itself[1] and drawn[3:] == by_itself[3:] and after == as_without, (drawn, by_itself)
    [note] = [it["text"] for it in process.all("note") if it["code"] == "largest-draws"]
    assert "draws a number (%s): plimsoll has it draw %s in its first and third turn" % (of, of.split()[-1]) in note
    told = [it["text"] for it in process.all("worst")]
    if "* 32" not in draw:
        assert len(told) == 1 and "draws a size by itself (%s)" % of in told[0], told


LEFT_ALONE = """
class Own(list):
    asked = 0
    def __getitem__(self, i):
        Own.asked += 1
        return list.__getitem__(self, i)
own_class, on_device = Own([32, 64]), [torch.zeros(n, device="cuda") for n in (1, 2)]
"""


@pytest.mark.matrix(2)
@pytest.mark.parametrize("draw", [
    "int(numpy.random.randint(16, 33, 4).sum()) // 4 + 8", "int(numpy.random.choice([32, 64], 2)[0])", "len(own_class) * 16 + 0 * random.choice(own_class)",
    "32 + 0 * len(random.choice(on_device))", "random.choice([64])", "random.randint(0, 3) * 16 + 16", "random.choice([32, 64.0]) and 32", "random.choice(['small', 'large']) and 32",
    "32 + 0 * random.randint(0, 2**64)"])
def test_what_is_no_size_is_left_alone(run, draw):
    process, ours = ran(run, draw, "1")
    _, without = ran(run, draw, "")
    assert ours == without and not process.all("worst")
    assert not [it for it in process.all("note") if it["code"] in ("largest-draws", "agent-failed")]


@pytest.mark.parametrize("draw", ["32 + 0 * random.randint(100, 200)", "32 + 0 * random.randint(1, 4)"])
def test_a_number_that_no_input_has_or_has_by_chance_is_not_called_a_size(run, draw):
    process, _ = ran(run, draw, "1")
    assert not process.all("worst")


def ran(run, draw, worst):
    r = run(SCRIPT.replace("LEFT_ALONE", LEFT_ALONE).replace("{draw}", draw), stop="until-exit", env={"PLIMSOLL_WORST_BATCHES": worst})
    assert r.returncode == 0, r.stderr
    (process,) = [it for it in r.processes if it.all("end")]
    return process, ast.literal_eval(r.stdout.splitlines()[-1])
