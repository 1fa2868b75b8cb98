"""Whether a pass that ran out of memory was on its way to a backward pass: the text of who called the model says it. No torch runs."""

import sys

import pytest
from plimsoll_agent.run.oom import _goes_back

CALLED = """
def model(x): return said()

def mean(x): return x

def validate(x):
    {validates}

def train(x):
    {trains}

class Value:
    backward = item = detach = lambda self: 1

said = seen
{runs}
Value().backward()
"""


def goes_back(tmp_path, validates="pass", trains="pass", runs="train(1)"):
    script, said = tmp_path / "train.py", []
    lines = {"validates": validates.replace("; ", "\n    "), "trains": trains.replace("; ", "\n    "), "runs": runs}
    script.write_text(CALLED.format(**lines))

    class Value:
        def backward(self):
            return 1

        def __add__(self, other):
            return self

        item = detach = backward

    def seen():
        said.append(_goes_back(sys._getframe(2)))
        return Value()

    exec(compile(script.read_text(), str(script), "exec"), {"seen": seen})
    return said[0]


@pytest.mark.parametrize(
    ("validates", "expected"),
    [
        ("return mean(model(x)).item()", False),
        ("total = 0.0; total += mean(model(x)).item()", False),
        ("loss = mean(model(x)); print(loss.item())", False),
        ("total = 0.0; total = total + mean(model(x)).item()", False),
        ("return mean(model(x)) + mean(model(x)).item()", True),
        ("out = model(x); loss = mean(out); return loss", True),
        ("return model(x)", True),
        ("global kept; kept = model(x)", True),
        ("a = model(x); b = a.item(); return mean(a)", True),
    ],
)
def test_of_a_function_that_may_be_an_evaluation(tmp_path, validates, expected):
    assert goes_back(tmp_path, validates=validates, runs="validate(1)") is expected


@pytest.mark.parametrize(
    "trains", ["loss = mean(model(x)); loss.backward()", "loss = mean(model(x)); print(loss.item()); loss.backward()", "mean(model(x)).backward()"]
)
def test_of_a_training(tmp_path, trains):
    assert goes_back(tmp_path, trains=trains)
