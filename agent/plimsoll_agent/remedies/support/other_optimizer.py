"""Another optimizer in the place of the one that the script makes.

The script's call of the class gives an object of another class, with what both understand: learning rate, weight
decay, groups. Subclasses that somebody wrote are left alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plimsoll_agent import patch
from plimsoll_agent.run.refusal import unsuited

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plimsoll_agent.kinds import Arguments, Function, Named, Note, Optimizer, Torch


def make_instead(torch: Torch, remedy: str, replaced: Sequence[type[Any]], maker: Function, note: Note) -> None:
    """Each class of `replaced` that the script calls gives `maker(params, options)`. Refuses if none was, by the
    time that the first step is made."""
    made = []

    def put(kind: type[Any]) -> None:
        def __new__(cls: Any, params: Any = None, lr: Any = None, *args: Any, **kwargs: Any) -> Any:
            if cls is not kind or params is None:
                return object.__new__(cls)
            options: Named = {name: kwargs[name] for name in ("weight_decay", "betas", "eps") if name in kwargs}
            if lr is not None:
                options["lr"] = lr
            made.append(kind)
            return maker(params, kind, options)

        patch.put(kind, "__new__", staticmethod(__new__))

    for kind in replaced:
        put(kind)

    def before_step(optimizer: Optimizer, args: Arguments, kwargs: Named) -> None:
        if not made:
            raise unsuited(
                remedy,
                "this script: its optimizer is %s, and plimsoll replaces only %s"
                % (type(optimizer).__name__, ", ".join(sorted(it.__name__ for it in replaced)))
            )

    from torch.optim import optimizer

    optimizer.register_optimizer_step_pre_hook(before_step)


def learning_rate(torch: Torch, kind: type[Any], options: Named) -> Any:
    """The script's, or what the class takes without one."""
    import inspect

    if "lr" in options:
        return options["lr"]
    return inspect.signature(kind.__init__).parameters["lr"].default
