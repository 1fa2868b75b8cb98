"""The allocator gives memory that nothing uses back to the device, at one point of the loop.

The numbers are the same. What is given back has to be asked for again, which waits for the device.

Parameters: `after`: `evaluation` unless given, `forward`, `backward` or `step`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plimsoll_agent.run import meter

if TYPE_CHECKING:
    from plimsoll_agent.kinds import Arguments, Backward, Function, Module, Named, Note, Torch
    from plimsoll_agent.remedies.support.hooks import Hooks


def apply(torch: Torch, parameters: Named, hooks: Hooks, note: Note) -> None:
    after = parameters.get("after", "evaluation")
    was_evaluating: list[Any] = []

    def around(module: Module, call: Function, args: Arguments, kwargs: Named) -> Any:
        training = module.training and hooks.is_training(module)
        if training and was_evaluating and after == "evaluation":
            was_evaluating.clear()
            empty(torch)
        elif not training and not was_evaluating:
            was_evaluating.append(True)
        result = call(*args, **kwargs)
        if training and after == "forward":
            empty(torch)
        return result

    def around_backward(run: Backward, tensors: Any, grad_tensors: Any) -> Any:
        result = run(tensors, grad_tensors)
        empty(torch)
        return result

    if after in ("evaluation", "forward"):
        hooks.around_call(around)
    elif after == "backward":
        hooks.around_backward(around_backward)
    elif after == "step":
        from torch.optim import optimizer

        optimizer.register_optimizer_step_post_hook(lambda *_: empty(torch))


def empty(torch: Torch) -> None:
    """Gives it back, and says to the meter what has to be asked for again."""
    before = _held(torch)
    torch.cuda.empty_cache()
    segments, size = (a - b for a, b in zip(before, _held(torch)))
    meter.emptied.add(size, segments)


def _held(torch: Torch) -> tuple[Any, ...]:
    """Segments and their bytes, on this device."""
    if not torch.cuda.is_initialized():
        return 0, 0
    stats = torch.cuda.memory_stats()
    return stats.get("segment.all.current", 0), stats.get("reserved_bytes.all.current", 0)
