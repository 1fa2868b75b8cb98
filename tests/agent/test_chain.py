"""Frameworks raise errors of their own where memory ran out: the one that ended a program comes from it all the same."""

import sys
from types import SimpleNamespace

import pytest
from plimsoll_agent.run.oom import OutOfMemory


class RanOut(RuntimeError):
    pass


def from_it():
    try:
        raise RanOut("no room")
    except RanOut as error:
        raise RuntimeError("a stage failed") from error  # As PyTorch's pipelines.


def while_it_is_handled():
    try:
        raise RanOut("no room")
    except RanOut:
        raise ValueError("see the log")  # noqa: B904


def hidden():
    try:
        raise RanOut("no room")
    except RanOut as error:
        raise SystemError(str(error)) from None


def twice():
    try:
        while_it_is_handled()
    except ValueError as error:
        raise KeyError("a worker") from error


def in_a_group():
    if sys.version_info < (3, 11):
        raise RanOut("no room")
    try:
        from_it()
    except RuntimeError as error:
        raise BaseExceptionGroup("tasks", [KeyError(), error])  # noqa: B904, F821


def in_a_circle():
    one, other = KeyError(), RanOut("no room")
    one.__cause__, other.__cause__ = other, one
    raise one


def survived():
    try:
        raise RanOut("no room")
    except RanOut:
        pass
    raise ValueError("another matter")


def behind(error, is_recent=True):
    return OutOfMemory.behind(SimpleNamespace(_torch=SimpleNamespace(OutOfMemoryError=RanOut), is_recent=is_recent), error)


@pytest.mark.parametrize("fails", [from_it, while_it_is_handled, hidden, twice, in_a_group, in_a_circle])
def test_memory_ran_out_behind_an_error_of_another_kind(fails):
    with pytest.raises(BaseException) as raised:
        fails()
    assert str(behind(raised.value)) == "no room"


def test_what_a_program_survived_did_not_end_it():
    with pytest.raises(ValueError) as raised:
        survived()
    assert behind(raised.value) is behind(None) is None


def test_who_trains_on_within_the_handler_did_not_end_there():
    with pytest.raises(ValueError) as raised:
        while_it_is_handled()
    assert behind(raised.value, is_recent=False) is None
    ran_out = RanOut("again")
    assert behind(ran_out, is_recent=False) is ran_out
