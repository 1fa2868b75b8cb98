"""When Python goes through everything that is old, in a child that has borrowed most of it."""

import os
import subprocess
import sys

import pytest
from harness import ROOT

pytestmark = pytest.mark.skipif((3, 14) <= sys.version_info, reason="Python collects in another way")

PROGRAM = """
import gc
BORROWED = [[] for _ in range(400_000)]
gc.collect()
from plimsoll_agent.imitate import garbage
if %(borrows)r:
    garbage.borrow()
full = []
gc.callbacks.append(lambda phase, info: full.append(len(own)) if phase == "stop" and info["generation"] == 2 else None)
own = []
%(collects)s
for _ in range(%(new)d):
    own.append([])
print(full)
"""


def full_collections(borrows, collects, new):
    """How many lists there were at each."""
    words = dict(borrows=borrows, collects="gc.collect()" if collects else "", new=new)
    environment = dict(os.environ, PYTHONPATH=str(ROOT / "agent"))
    ran = subprocess.run([sys.executable, "-c", PROGRAM % words], env=environment, capture_output=True, text=True, check=True)
    return eval(ran.stdout)


@pytest.mark.parametrize("collects", [False, True])
def test_it_comes_when_a_quarter_of_all_is_new(collects):
    alone, borrowed = (full_collections(it, collects, 600_000) for it in (False, True))
    assert len(alone) == len(borrowed) == 3 + collects
    assert all(abs(a - b) < 2000 for a, b in zip(alone, borrowed)), (alone, borrowed)


def test_it_does_not_come_for_less():
    assert full_collections(True, True, 80_000) == full_collections(False, True, 80_000) == [0]


def test_what_is_borrowed_is_not_gone_through():
    ran = subprocess.run(
        [sys.executable, "-c", "import gc; from plimsoll_agent.imitate import garbage; garbage.borrow(); print(len(gc.get_objects()))"],
        env=dict(os.environ, PYTHONPATH=str(ROOT / "agent")), capture_output=True, text=True, check=True,
    )
    assert int(ran.stdout) < 1000
