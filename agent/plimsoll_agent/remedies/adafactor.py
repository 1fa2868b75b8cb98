"""Adafactor in the place of Adam and AdamW: means of rows and columns instead of two numbers for each parameter.

Changes the training: it is another optimizer, and its learning rate is to be found anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plimsoll_agent.remedies.support.other_optimizer import learning_rate, make_instead

if TYPE_CHECKING:
    from plimsoll_agent.kinds import Named, Note, Torch
    from plimsoll_agent.remedies.support.hooks import Hooks


def apply(torch: Torch, parameters: Named, hooks: Hooks, note: Note) -> None:
    def make(params: Any, kind: type[Any], options: Named) -> Any:
        decay = {"weight_decay": options["weight_decay"]} if "weight_decay" in options else {}
        return torch.optim.Adafactor(params, lr=learning_rate(torch, kind, options), **decay)

    make_instead(torch, "adafactor", (torch.optim.Adam, torch.optim.AdamW), make, note)
