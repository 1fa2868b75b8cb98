"""Plain SGD in the place of the script's optimizer: it has no state.

Changes the training: it is another optimizer, and its learning rate is to be found anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plimsoll_agent.remedies.support.other_optimizer import learning_rate, make_instead

if TYPE_CHECKING:
    from plimsoll_agent.kinds import Named, Note, Torch
    from plimsoll_agent.remedies.support.hooks import Hooks


def apply(torch: Torch, parameters: Named, hooks: Hooks, note: Note) -> None:
    names = ("Adam", "AdamW", "NAdam", "RAdam", "Adamax", "Adagrad", "Adadelta", "RMSprop", "Adafactor")
    replaced = [getattr(torch.optim, name) for name in names if hasattr(torch.optim, name)]

    def make(params: Any, kind: type[Any], options: Named) -> Any:
        decay = {"weight_decay": options["weight_decay"]} if "weight_decay" in options else {}
        return torch.optim.SGD(params, lr=learning_rate(torch, kind, options), **decay)

    make_instead(torch, "sgd", replaced, make, note)
