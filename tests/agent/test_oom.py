"""A request that the allocator refused: an error of the script's, or one that PyTorch passed over in C++."""

import subprocess

import pytest
from harness import PYTHON, ROOT

PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
import torch
from plimsoll_agent.run.oom import OutOfMemory

class Place:
    def where(self):
        return {}

class Anything:
    step, current, thread = 2, None, None
    input_wants_gradient = False
    def place(self):
        return Place()
    def all(self):
        pass
    def name(self, device):
        return "a card"
    def note(self, code, text):
        print("note", code)
    def write(self, kind, **fields):
        print(kind, fields["message"], fields["caught"])

it = Anything()
oom = OutOfMemory(torch, it, it, it, it)
oom._notice_raising()

oom._ran_out(0, 1 << 30, 1 << 33, 0)  # cuDNN's first algorithm; the second one needs less
oom.go_on()
print("--")
oom._ran_out(0, 1 << 30, 1 << 33, 0)
try:
    raise torch.OutOfMemoryError("no room")  # what PyTorch makes of it in Python
except RuntimeError as error:
    print(repr(error))
oom.go_on()
print("--")
oom._ran_out(0, 1 << 30, 1 << 33, 0)
oom._ran_out(0, 1 << 20, 1 << 33, 0)
oom.ended(torch.OutOfMemoryError("the end"))
"""


@pytest.mark.soak
def test_only_what_reached_python_is_an_error_of_the_script():
    ran = subprocess.run([PYTHON, "-c", PROGRAM, str(ROOT / "agent")], capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    passed_over, caught, fatal = ran.stdout.split("--\n")
    assert passed_over == "note algorithm-refused\n"
    assert caught == "OutOfMemoryError('no room')\noom no room True\n"
    assert fatal == "note algorithm-refused\noom the end False\n"


GOES_BACK = PROGRAM.partition("oom._ran_out")[0].replace('kind, fields["message"], fields["caught"]', 'fields["goes_back"]') + """
def runs_out():
    oom._ran_out(0, 1 << 30, 1 << 33, 0)
    oom._raised(torch.OutOfMemoryError("no room"))
    oom.go_on()

def attributes(x):
    runs_out()
    return torch.autograd.grad(x, x)

def trains(loss):
    try:
        runs_out()
        loss.backward()
    except AttributeError:
        pass

def evaluates(losses):
    for loss in losses:
        loss.backward()
    return runs_out()

try:
    attributes(None)
except Exception:
    pass
trains(None)
evaluates([])
it.input_wants_gradient = True
evaluates([])
"""


def test_a_function_that_goes_on_to_a_backward_pass_is_known_where_memory_runs_out():
    ran = subprocess.run([PYTHON, "-c", GOES_BACK, str(ROOT / "agent")], capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    # What a function did before says nothing of the pass that runs out.
    assert ran.stdout.split() == ["True", "True", "False", "True"]
