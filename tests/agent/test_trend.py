"""What rises and goes on rising, and what only looks like it: the numbers alone."""

import random
import sys
from types import SimpleNamespace

import pytest
from harness import ROOT

sys.path.insert(0, str(ROOT / "agent"))
from plimsoll_agent.run.steady import GivenBack  # noqa: E402
from plimsoll_agent.watch.device import Device  # noqa: E402
from plimsoll_agent.watch.trend import MOST, Trend  # noqa: E402

KIB, MIB = 1 << 10, 1 << 20
ROOM = 1024 * MIB


def told_at(lives, steps, *, needs=lambda step: 100 * MIB, count=lambda step: 50, share=0.2):
    """The step at which a fifth of what was free is gone and still goes; None if that is never said. `needs` is what a step
    needs beside what lives."""
    trend, most = Trend(2), 0
    for step in range(1, steps):
        most = max(most, lives(step) + needs(step))
        if trend.add(step, lives(step), count(step), most):
            rise = trend.rise(lambda peak: share * (ROOM - peak), ROOM)
            if rise is not None:
                return step, rise
    return None


@pytest.mark.parametrize("per_step", [16 * KIB, 100 * KIB, MIB, 8 * MIB, 30 * MIB])
def test_a_leak_is_told_before_half_of_the_room_is_gone(per_step):
    step, rise = told_at(lambda step: 50 * MIB + per_step * step, 60_000)
    assert per_step * step < (ROOM - 150 * MIB) / 2
    assert rise.per_step == pytest.approx(per_step, rel=0.1)


@pytest.mark.parametrize("every", [7, 100, 500])
def test_a_leak_of_each_evaluation_is_one(every):
    step, rise = told_at(lambda step: 50 * MIB + 4 * MIB * (step // every), 400 * every)
    assert 4 * MIB * (step // every) < ROOM // 2
    assert rise.per_step == pytest.approx(4 * MIB / every, rel=0.25)


def test_a_leak_below_batches_of_any_length_is_one():
    draw = random.Random(1)
    step, rise = told_at(lambda step: 50 * MIB + 64 * KIB * step + draw.randrange(200 * MIB), 60_000)
    assert 64 * KIB * step < ROOM // 2
    assert rise.per_step == pytest.approx(64 * KIB, rel=0.25)


def test_one_that_begins_late_is_told_from_there():
    step, rise = told_at(lambda step: 50 * MIB + 64 * KIB * max(step - 20_000, 0), 60_000)
    assert 20_000 < step and 64 * KIB * (step - 20_000) < ROOM // 2


@pytest.mark.parametrize(
    "what",
    [
        lambda step, draw: 50 * MIB,
        lambda step, draw: 50 * MIB + draw.randrange(800 * MIB),
        lambda step, draw: 50 * MIB + (400 * MIB if step > 5_000 else 0),
        lambda step, draw: 50 * MIB + 300 * MIB * min(step // 4_000, 4) // 4,
        lambda step, draw: 50 * MIB + MIB * min(step, 100),
        lambda step, draw: int(50 * MIB + 600 * MIB * (1 - 0.999**step)),
        lambda step, draw: 50 * MIB + MIB * (400 - step % 400),
    ],
    ids=["even", "any length", "one more model", "in four stairs", "filled to a bound", "fills ever more slowly", "sorted down"],
)
def test_what_ends_or_comes_back_is_none(what):
    draw = random.Random(7)
    found = told_at(lambda step: what(step, draw), 30_000)
    assert found is None


def test_a_bank_that_is_full_rises_no_more_though_a_look_back_still_shows_it():
    full, leak = Trend(2), Trend(2)
    seen = set()
    for step in range(1, 600):
        full.add(step, 90 * MIB + 2 * MIB * min(step, 256), 50, 100 * MIB + 4 * MIB * min(step, 256))
        leak.add(step, 90 * MIB + 2 * MIB * (step // 5), 50, 100 * MIB)
        assert leak.still_rises
        if full.rise(lambda peak: 100 * MIB, ROOM) is not None:
            seen.add((256 < step, full.still_rises))
    # Some looks come after it was full, and see that it is, once it is no chance any more.
    assert (False, True) in seen and (True, False) in seen
    assert not full.still_rises


def test_a_run_of_any_length_is_a_few_numbers():
    trend = Trend(2)
    for step in range(1, 200_000):
        trend.add(step, 1, 1, 1)
    assert len(trend._buckets) < MOST


def growth_and_drift(lives, needs, steps):
    """The steps at which a device has growth, and drift; None for one that never comes."""
    device, found = Device(0), [None, None]
    device.limit = device.in_reach = ROOM
    for step in range(1, steps):
        peak = needs(step)
        if device.step_ended(step, SimpleNamespace(allocated=[lives(step)], reserved=[peak], peaks=[(peak, peak)], live=[(50,)])):
            for i, rise in enumerate((device.growth(), device.drift())):
                found[i] = found[i] or (rise and (step, rise, device.runs_out_in(rise)))
    return found


def test_a_bank_that_the_loss_looks_at_is_growth_before_it_is_drift():
    growth, drift = growth_and_drift(lambda step: 50 * MIB + MIB // 2 * step, lambda step: 100 * MIB + 5 * MIB * step, 170)
    step, rise, left = growth
    assert rise.may_be_batches and rise.per_step == pytest.approx(MIB // 2, rel=0.1)
    assert step < drift[0] and step + left == pytest.approx(924 / 5, abs=8)


def test_longer_and_longer_batches_of_which_nothing_stays_are_drift_alone():
    growth, drift = growth_and_drift(lambda step: 50 * MIB, lambda step: 100 * MIB + 5 * MIB * step, 180)
    assert growth is None and drift is not None


def test_what_is_given_back_once_is_waited_for_until_it_shows_what_it_is():
    def waits(levels):
        given_back, res = GivenBack(), []
        for level in levels:
            given_back.add(level * MIB)
            res.append(given_back.may_come_again)
        return res

    sessions = waits([step % 40 for step in range(100)])
    assert (sessions.index(True), sessions.index(False, 40)) == (40, 80), "until the second is closed"
    late = waits(list(range(40)) + list(range(200)))
    assert late.index(False, 40) == 40 + 79, "until it is far above what the first one was"
    assert not any(waits([0, 90, 0, 1, 2, 3]))
    assert not any(waits([5] * 50))
    assert not waits(list(range(40)) + [0] * 20)[-1]
