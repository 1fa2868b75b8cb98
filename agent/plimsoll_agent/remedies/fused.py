"""Fused optimizers (`fused=True`): one kernel updates many parameters.

Saves the temporaries of the optimizer's step and is faster. The same arithmetic in another order: equal to
rounding. Optimizers that have no fused form stay as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plimsoll_agent.remedies.support.optimizers import set_in_optimizers

if TYPE_CHECKING:
    from plimsoll_agent.kinds import Named, Note, Torch
    from plimsoll_agent.remedies.support.hooks import Hooks


def apply(torch: Torch, parameters: Named, hooks: Hooks, note: Note) -> None:
    set_in_optimizers(torch, fused=True)
