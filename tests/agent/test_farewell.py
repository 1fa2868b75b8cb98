"""How long the processes of a serving engine are waited for."""

import multiprocessing
import sys
import time

from harness import ROOT

sys.path.insert(0, str(ROOT / "agent"))
from plimsoll_agent.engines import servers


def works(seconds):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass


def below(seconds):
    child = multiprocessing.Process(target=works, args=(seconds,))
    child.start()
    child.join()


def test_who_works_is_waited_for_and_who_does_nothing_is_not(monkeypatch):
    """Four ranks that write at once on two busy cores, below an engine that waits for them."""
    monkeypatch.setattr(servers, "FAREWELL", 0.6)
    at_once = multiprocessing.get_context("fork")
    for do, seconds, ends in ((works, 2, True), (below, 2, True), (time.sleep, 60, False)):
        process = at_once.Process(target=do, args=(seconds,))
        process.start()
        servers.wait_for([process])
        assert process.is_alive() is not ends, do
        process.kill()
        process.join()
