"""Where a generator comes to after many draws: counted through once, and known to every process that is forked after that."""

import os
import sys

import pytest
from harness import ROOT

sys.path.insert(0, str(ROOT / "agent"))

from plimsoll_agent.values import draws  # noqa: E402


@pytest.fixture
def shared():
    draws.share()
    yield
    draws._shared = None


def counting(torch, calls):
    """As the phantom does it, and slowly: it draws."""

    def drawn(address, size, n):
        import ctypes

        calls.append(n)
        state = torch.frombuffer(bytearray(ctypes.string_at(address, size)), dtype=torch.uint8)
        generator = torch.Generator()
        generator.set_state(state.clone())
        torch.empty(n).random_(generator=generator)
        ctypes.memmove(address, bytes(generator.get_state().tolist()), size)
        return 1

    return drawn


def after(torch, calls, seed, n):
    state = torch.Generator().manual_seed(seed).get_state()
    assert draws.draw(counting(torch, calls), state, n) == 1
    return bytes(state.tolist())


def test_what_was_counted_once_is_known(shared):
    import torch

    calls = []
    first = {(seed, n): after(torch, calls, seed, n) for seed in (1, 2) for n in (1000, 1001)}
    assert calls == [1000, 1001] * 2 and len(set(first.values())) == 4
    assert {key: after(torch, calls, *key) for key in first} == first and len(calls) == 4


def test_what_a_child_counted_is_known_here(shared):
    import torch

    pid = os.fork()
    if pid == 0:
        after(torch, [], 3, 500)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    calls = []
    after(torch, calls, 3, 500)
    assert not calls


def test_half_of_an_entry_is_none(shared):
    import torch

    calls = []
    first = after(torch, calls, 4, 700)
    at = draws._shared.find(first)
    assert 0 < at
    draws._shared[at : at + 8] = bytes(8)
    assert after(torch, calls, 4, 700) == first and len(calls) == 2


def test_nobody_shares_anything_in_a_process_of_its_own():
    import torch

    calls = []
    after(torch, calls, 5, 100)
    after(torch, calls, 5, 100)
    assert calls == [100, 100]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_stand_in_looks_like_what_was_drawn_and_leaves_the_generator_where_that_would(monkeypatch, dtype):
    import torch
    from plimsoll_agent.values import ghosts

    def fills():
        torch.manual_seed(1)
        large, small = torch.empty(1_100_003, dtype=getattr(torch, dtype)), torch.empty(1000)
        torch.nn.init.normal_(large, 1.0, 3.0)
        torch.nn.init.uniform_(small, -1, 1)
        half = torch.nn.Parameter(torch.empty_like(large))
        torch.nn.init.uniform_(half, 2, 4)
        return large, small, half.detach(), torch.rand(8)

    drawn = fills()
    for name in ("normal_", "uniform_"):
        monkeypatch.setattr(torch.Tensor, name, getattr(torch.Tensor, name))
    calls = []
    ghosts.StandIns(torch, counting(torch, calls)).install()
    stood_in = fills()
    assert len(calls) == 2, "the small one is drawn"
    assert (drawn[1] == stood_in[1]).all() and (drawn[3] == stood_in[3]).all()
    for ours, theirs in zip(stood_in[::2], drawn[::2]):
        assert abs(ours.float().mean() - theirs.float().mean()) < 0.05 and abs(ours.float().std() - theirs.float().std()) < 0.05
