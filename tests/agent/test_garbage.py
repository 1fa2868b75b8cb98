"""When Python goes through everything that is old, in a child that has borrowed most of it."""

import os
import subprocess
import sys

import pytest
from harness import ROOT

pytestmark = pytest.mark.skipif((3, 14) <= sys.version_info, reason="Python collects in another way")

PROGRAM = """
import gc
from plimsoll_agent.imitate import garbage
if %(holds)r:
    garbage.hold()
IMPORTED = [[] for _ in range(%(imported)d)]
%(collects_before)s
meanwhile = gc.get_stats()[2]["collections"]
if %(borrows)r:
    garbage.lend()
full = []
gc.callbacks.append(lambda phase, info: full.append(len(own)) if phase == "stop" and info["generation"] == 2 else None)
own = []
%(collects)s
for _ in range(%(new)d):
    own.append([])
print((meanwhile, full))
"""
ALONE = {"holds": False, "borrows": False, "collects_before": "gc.collect()"}
BORROWED = {**ALONE, "borrows": True}
HELD = {"holds": True, "borrows": True, "collects_before": ""}


def ran(words, imported=400_000, collects=False, new=0):
    """How often it came before, and how many lists there were each time that it came later."""
    words = {**words, "imported": imported, "collects": "gc.collect()" if collects else "", "new": new}
    environment = dict(os.environ, PYTHONPATH=str(ROOT / "agent"))
    ran = subprocess.run([sys.executable, "-c", PROGRAM % words], env=environment, capture_output=True, text=True, check=True)
    return eval(ran.stdout)


@pytest.mark.parametrize("collects", [False, True])
def test_it_comes_when_a_quarter_of_all_is_new(collects):
    (_, alone), (_, borrowed) = (ran(it, collects=collects, new=600_000) for it in (ALONE, BORROWED))
    assert len(alone) == len(borrowed) == 3 + collects
    assert all(abs(a - b) < 2000 for a, b in zip(alone, borrowed)), (alone, borrowed)


def test_it_does_not_come_for_less():
    assert ran(BORROWED, collects=True, new=80_000)[1] == ran(ALONE, collects=True, new=80_000)[1] == [0]


@pytest.mark.parametrize("imported", [2_000, 50_000, 120_000, 333_333, 400_000])
def test_it_comes_as_if_nobody_had_held_it_while_there_were_imports(imported):
    untouched = {**ALONE, "collects_before": ""}
    (before, alone), (held, borrowed) = (ran(it, imported, new=700_000) for it in (untouched, HELD))
    assert held == 0 and (before > 0 or imported < 90_000)
    assert len(alone) == len(borrowed) > 2
    assert all(abs(a - b) < 2000 for a, b in zip(alone, borrowed)), (alone, borrowed)


def test_one_that_a_library_asks_for_while_it_is_imported_counts():
    alone, borrowed = (ran({**it, "collects_before": "gc.collect()"}, new=600_000)[1] for it in (ALONE, HELD))
    assert len(alone) == len(borrowed) == 3
    assert all(abs(a - b) < 2000 for a, b in zip(alone, borrowed)), (alone, borrowed)


def test_what_is_borrowed_is_not_gone_through():
    ran = subprocess.run(
        [sys.executable, "-c", "import gc; from plimsoll_agent.imitate import garbage; garbage.lend(); print(len(gc.get_objects()))"],
        env=dict(os.environ, PYTHONPATH=str(ROOT / "agent")), capture_output=True, text=True, check=True,
    )
    assert int(ran.stdout) < 1000
