"""Which statements of earlier cells a cell needs."""

import ast
import sys

import pytest
from harness import ROOT

sys.path.insert(0, str(ROOT / "python"))
from plimsoll._slice import needed  # noqa: E402


def kept(*cells):
    """The statements that are kept, without the cell itself, a line each."""
    named = [(f"In[{number}]", text) for number, text in enumerate(cells, start=1)]
    *earlier, _ = needed(named[:-1], named[-1])
    return [ast.unparse(ast.parse(text).body[index]) for _, text, indices in earlier for index in indices]


def test_what_binds_a_name_and_what_that_needs():
    assert kept("import a\nimport b", "n = 3\nm = 4", "def f(x):\n    return a.g(x, n)", "f(2)") == [
        "import a", "n = 3", "def f(x):\n    return a.g(x, n)"
    ]


def test_the_last_binding_counts_and_one_that_builds_on_it_needs_it():
    assert kept("n = 1", "n = 2", "n") == ["n = 2"]
    assert kept("n = 1", "n = n + 1", "n") == ["n = 1", "n = n + 1"]
    assert kept("n = 1", "n += 1", "n") == ["n = 1", "n += 1"]
    assert kept("n = 1", "if m:\n    n = 2", "m = 0", "n") == ["n = 1", "if m:\n    n = 2"]
    # What came after the statement that needs it is none of its.
    assert kept("m = 1", "n = m", "m = 2", "n") == ["m = 1", "n = m"]


def test_what_changes_a_thing_is_needed_and_training_is_not():
    cells = (
        "model = make()",
        "model.cuda()",
        "data = []\nfor x in range(3):\n    data.append(x)",
        "for x in data:\n    loss = model(x)\n    loss.backward()\n    optimizer.step()",
        "model.head.bias = None",
        "other.cuda()",
        "run(model, data)",
    )
    assert kept(*cells) == [
        "model = make()", "model.cuda()", "data = []", "for x in range(3):\n    data.append(x)", "model.head.bias = None"
    ]


@pytest.mark.parametrize("binds", ["from a import b as n", "with open('x') as n:\n    pass", "for n in range(3):\n    pass", "class n:\n    pass", "n: int = 3", "(m, *n) = 1, 2"])
def test_each_way_to_bind(binds):
    assert kept(binds, "n") == [ast.unparse(ast.parse(binds))]


@pytest.mark.parametrize("own", [
    "n = 2\nprint(n)",
    "import a as n\nn.f()",
    "for n in (1, 2):\n    print(n)",
    "for k in (1, 2):\n    n = k\n    print(n)",
    "with open('x') as n:\n    n.read()",
    "if True:\n    n = 2\n    print(n)",
    "while True:\n    n = 2\n    n += 1",
    "try:\n    n = 2\n    print(n)\nexcept OSError:\n    pass",
    "def n(): ...\nn()",
])
def test_what_the_cell_binds_before_it_reads_it_is_not_needed(own):
    assert kept("n = 1", own) == []


@pytest.mark.parametrize("own", [
    "print(n)\nn = 2",
    "n = n + 1",
    "n += 1",
    "del n",
    "for n in n:\n    pass",
    "for k in (1, 2):\n    print(n)\n    n = k",
    "if k:\n    n = 2\nprint(n)",
    "with open(n) as n:\n    pass",
    "for n in (): pass\nprint(n)",
    "try:\n    n = 2\nexcept OSError:\n    pass\nprint(n)",
    "n = [each for each in n]",
    "def f(): return n\nf()\nn = 2",
])
def test_what_the_cell_reads_before_it_binds_it_is_needed(own):
    assert kept("n = 1", own) == ["n = 1"]


def test_what_is_a_functions_own_is_not_needed():
    assert kept("loss = 1\nx = 2\nrate = 3", "def f(x, y=rate):\n    loss = x + y + [k for k in (1,)][0]\n    return lambda z: z * loss", "f(1)") == [
        "rate = 3", "def f(x, y=rate):\n    loss = x + y + [k for k in (1,)][0]\n    return lambda z: z * loss"
    ]
    assert kept("seen = []\nn = 0", "def f():\n    global n\n    n = n + 1\n    seen.append(n)", "f()")[:2] == ["seen = []", "n = 0"]


def test_a_cell_that_is_no_python_never_ran():
    assert kept("n = ", "n = 1", "n") == ["n = 1"]
    with pytest.raises(SyntaxError):
        kept("n = 1", "n +")


def test_a_loop_that_trains_is_left_out_and_a_star_import_is_not():
    training = "for x in data:\n    loss = model(x)\n    loss.backward()"
    assert kept("data = [1]", "model = make()", training, training) == ["data = [1]", "model = make()"]
    assert kept("from a import *", "n") == ["from a import *"]
