"""Automatic mixed precision: from the call of the model until backward, as `with torch.autocast(...)` around
the forward pass and the loss.

Halves most activations and is faster on cards with tensor cores. Changes the numbers: bfloat16 has 8 bits of
mantissa; weights, gradients and optimizer state stay as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from plimsoll_agent.kinds import Arguments, Function, Module, Named, Note, Torch
    from plimsoll_agent.remedies.support.hooks import Hooks


def apply(torch: Torch, parameters: Named, hooks: Hooks, note: Note) -> None:
    under_autocast(torch, hooks, torch.bfloat16)


def under_autocast(torch: Torch, hooks: Hooks, dtype: Any) -> None:
    """The same, in `dtype`."""
    open_contexts: list[Any] = []

    def close() -> None:
        while open_contexts:
            open_contexts.pop().__exit__(None, None, None)

    def around(module: Module, call: Function, args: Arguments, kwargs: Named) -> Any:
        kind = next(module.parameters()).device.type
        if torch.is_autocast_enabled(kind) and not open_contexts:
            return call(*args, **kwargs)  # The script does it itself.
        if not torch.is_grad_enabled():
            with torch.autocast(kind, dtype=dtype):
                return call(*args, **kwargs)
        if not open_contexts:
            context = torch.autocast(kind, dtype=dtype)
            context.__enter__()
            open_contexts.append(context)
        try:
            return call(*args, **kwargs)
        except BaseException:
            close()
            raise

    hooks.around_call(around)
    hooks.before_backward(close)
