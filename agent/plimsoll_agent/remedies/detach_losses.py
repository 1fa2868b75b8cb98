"""After backward a loss is detached: a list or a sum of losses then holds numbers, and no graph of each step.

The numbers are the same. A loss whose graph the script keeps (`retain_graph`, `create_graph`) is left alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from plimsoll_agent.kinds import Named, Note, Tensor, Torch
    from plimsoll_agent.remedies.support.hooks import Hooks


def apply(torch: Torch, parameters: Named, hooks: Hooks, note: Note) -> None:
    def after(roots: tuple[Tensor, ...]) -> None:
        for root in roots:
            if root.grad_fn is not None and not root._is_view() and root.dim() == 0:
                root.detach_()

    hooks.after_last_backward(after)
