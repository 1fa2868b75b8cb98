"""A look at the variables of a function that runs keeps none of their values, and takes nothing from the function."""

import sys
import weakref

import pytest
from harness import ROOT

sys.path.insert(0, str(ROOT / "agent"))
from plimsoll_agent.run import frames, keepers  # noqa: E402
from plimsoll_agent.run.extent import of_this_step  # noqa: E402


class Value:
    pass


def looked_at():
    return list(frames.variables(sys._getframe(1)).items())


def searched():
    return list(keepers._roots([sys._getframe(1)], None))


LOOKS = [looked_at, searched, lambda: of_this_step(3)]


@pytest.mark.parametrize("look", LOOKS)
def test_a_value_that_the_function_lets_go_is_gone(look):
    value = Value()
    seen = weakref.ref(value)
    look()
    value = None
    assert seen() is None and value is None


@pytest.mark.parametrize("look", LOOKS)
def test_variables_that_the_function_wrote_down_stay(look):
    def train(width, steps=3):
        given = locals()
        for _ in range(steps):
            look()
        return given

    assert train(64)["width"] == 64
