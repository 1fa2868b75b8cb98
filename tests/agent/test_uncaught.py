"""What ends with an error is noticed, whatever a program puts in the place of Python's hooks. No torch in here."""

import subprocess
import sys

import pytest
from harness import ROOT

BEGIN = """
import sys
sys.path.insert(0, %r)
from plimsoll_agent.run import uncaught
def says(who):
    return lambda error: print(who, "saw", type(error).__name__, flush=True)
uncaught.of_program(says("program"))
uncaught.of_thread(says("thread"))
uncaught.of_child(says("child"))
uncaught.watch_children()
""" % str(ROOT / "agent")

PROGRAMS = {
    "an error": ("raise KeyError(1)", 1, "program saw KeyError\n"),
    "an error with a hook of its own": (
        "sys.excepthook = lambda kind, error, trace: print('mine', flush=True)\nraise KeyError(1)",
        1,
        "program saw KeyError\nmine\n",
    ),
    "an exit": ("sys.exit(3)", 3, ""),
    "an interrupt": ("import signal\nsignal.raise_signal(signal.SIGINT)", -2, ""),
    "one that is caught": ("try: raise KeyError(1)\nexcept KeyError: pass", 0, ""),
    # Nothing ends: it is printed, and the program goes on.
    "one in a callback of C": ("import ctypes\nctypes.CFUNCTYPE(None)(lambda: 1 / 0)()", 0, ""),
    "a thread": (
        "import threading\nit = threading.Thread(target=lambda: 1 / 0)\nit.start(); it.join()",
        0,
        "thread saw ZeroDivisionError\n",
    ),
    "a thread with a hook of its own": (
        "import threading\nthreading.excepthook = lambda it: print('mine', flush=True)\n"
        "it = threading.Thread(target=lambda: 1 / 0)\nit.start(); it.join()",
        0,
        "thread saw ZeroDivisionError\nmine\n",
    ),
    "a thread that exits": ("import threading\nit = threading.Thread(target=sys.exit)\nit.start(); it.join()", 0, ""),
    "a child": (
        "import multiprocessing\nit = multiprocessing.get_context('fork').Process(target=lambda: 1 / 0)\n"
        "it.start(); it.join(); print(it.exitcode)",
        0,
        "child saw ZeroDivisionError\n1\n",
    ),
    "a child that exits": (
        "import multiprocessing\nit = multiprocessing.get_context('fork').Process(target=sys.exit, args=(4,))\n"
        "it.start(); it.join(); print(it.exitcode)",
        0,
        "4\n",
    ),
}


@pytest.mark.parametrize("what", PROGRAMS)
def test_what_ends_with_an_error_is_seen(what):
    text, code, says = PROGRAMS[what]
    ran = subprocess.run([sys.executable, "-c", BEGIN + text], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert (ran.returncode, ran.stdout) == (code, says), ran
    assert "plimsoll" not in ran.stderr, ran
