"""Which phases are marked where there are very many of them."""

import types

import pytest
from harness import ROOT


@pytest.fixture
def phases(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "agent"))
    from plimsoll_agent.run import phases

    monkeypatch.setattr(phases, "MOST_MARKS", 100)
    return phases


def test_an_evaluation_after_very_many_steps_is_marked(phases):
    written = []
    place = types.SimpleNamespace(allocs=[0], fields=lambda: {})
    memory = types.SimpleNamespace(started=True, place=lambda: place)
    recording = types.SimpleNamespace(
        seconds=lambda: 0.0, write=lambda kind, **it: written.append((it["what"], it["phase"])), note=lambda code, text: written.append((code, None))
    )
    it = phases.Phases(memory, recording)

    def one(phase):
        begun = it.begin(phase)
        if begun:
            it.end(phase)

    for _ in range(50):
        for phase in ("forward", "forward", "backward", "optimizer"):
            one(phase)
        it.forget_calls()
    assert sum(what == "many-phases" for what, _ in written) == 1
    n_of_training = len(written)
    assert n_of_training < 110
    for _ in range(10):
        one("forward")
    # A step has two before its backward pass.
    assert written[n_of_training:] == [("phase_begin", "forward"), ("phase_end", "forward")] * 8
