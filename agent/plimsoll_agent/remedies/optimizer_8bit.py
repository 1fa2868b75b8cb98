"""Adam and AdamW with state in 8 bits, from torchao or bitsandbytes, whichever is installed.

Two bytes of state for each parameter instead of eight. Changes the numbers: state is quantized in blocks; small
parameters keep it as it was.
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

from plimsoll_agent.remedies.support.other_optimizer import learning_rate, make_instead
from plimsoll_agent.run.refusal import CannotApply

if TYPE_CHECKING:
    from plimsoll_agent.kinds import Named, Note, Torch
    from plimsoll_agent.remedies.support.hooks import Hooks

PACKAGES = ("torchao", "bitsandbytes")


def installed() -> str | None:
    """The package that has the optimizers; None if there is none."""
    return next((it for it in PACKAGES if importlib.util.find_spec(it) is not None), None)


def apply(torch: Torch, parameters: Named, hooks: Hooks, note: Note) -> None:
    package = installed()
    if package is None:
        raise CannotApply("plimsoll: the remedy optimizer-8bit needs torchao or bitsandbytes; neither is installed")
    optimizers = importlib.import_module(package + ".optim")

    def make(params: Any, kind: type[Any], options: Named) -> Any:
        if "lr" not in options:
            options["lr"] = learning_rate(torch, kind, options)
        return getattr(optimizers, kind.__name__ + "8bit")(params, **options)

    make_instead(torch, "optimizer-8bit", (torch.optim.Adam, torch.optim.AdamW), make, note)
