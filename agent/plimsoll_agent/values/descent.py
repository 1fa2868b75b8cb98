"""Decides how many iterations an optimizer makes that solves inside its step: any L-BFGS.

Its memory is a history of past directions, each as large as the model, and whether it goes on to the next is
decided by numbers. On a phantom these are of a descent that goes well, until the history is full and a little
further; then it stops as if it had arrived. A real one may stop earlier, and takes less then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plimsoll_agent.run.guard import guarded
from plimsoll_agent.values import phantom

if TYPE_CHECKING:
    from plimsoll_agent.kinds import Arguments, Function, Named, Optimizer

FURTHER = 8
"""Turns after the history is full, in which nothing grows any more."""

USUAL = 100
"""The number of stored directions where the optimizer does not have its own: `history_size` of `torch.optim.LBFGS`."""


def stepped(step: Function, args: Arguments, kwargs: Named) -> Any:
    """Calls an optimizer's `step`, as a descent if it is one."""
    turns = _turns(args[0]) if args else None
    closure = kwargs.get("closure", args[1] if len(args) > 1 else None)
    if turns is None or not callable(closure):
        return step(*args, **kwargs)
    width, left = turns

    def counted(*inner: Any, **named: Any) -> Any:
        nonlocal left
        left -= 1
        if left == 0:
            phantom.descends(width, still=True)
        return closure(*inner, **named)

    if "closure" in kwargs:
        kwargs = dict(kwargs, closure=counted)
    else:
        args = (args[0], counted, *args[2:])
    phantom.descends(width)
    try:
        return step(*args, **kwargs)
    finally:
        phantom.descends(0)


@guarded
def _turns(optimizer: Optimizer) -> tuple[Any, Any] | None | None:
    """The bytes of its loss, and how often it may ask for one; None if it is not of this kind."""
    if not any("LBFGS" in it.__name__.upper() for it in type(optimizer).__mro__) or not phantom.is_here():
        return None
    (group, *_) = optimizer.param_groups
    history = group.get("history_size", getattr(optimizer, "history_size", USUAL))
    width = max((p.element_size() for p in group["params"] if p.is_cuda), default=0)
    return (width, int(history) + FURTHER) if width in (4, 8) else None
