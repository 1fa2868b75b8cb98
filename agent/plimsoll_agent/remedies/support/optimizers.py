"""The optimizers that a script makes: which they are, with other options, or with a step that goes in parts."""

from __future__ import annotations

import functools
import inspect
import sys
import weakref
from typing import TYPE_CHECKING, Any

from plimsoll_agent import patch
from plimsoll_agent.run.refusal import unsuited

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from plimsoll_agent.kinds import Function, Named, Optimizer, Parameters, Tensor, Torch


def made_optimizers(torch: Torch) -> weakref.WeakSet[Optimizer]:
    """Every optimizer that the script makes from now on."""
    made: weakref.WeakSet[Optimizer]
    made, optimizer_class = weakref.WeakSet(), torch.optim.Optimizer
    original = optimizer_class.__init__

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        made.add(self)

    patch.put(optimizer_class, "__init__", __init__)
    return made


def set_in_optimizers(torch: Torch, **values: Any) -> None:
    """Every optimizer made from now on has these options, if it bears them and the script left them open."""
    optimizer_class = torch.optim.Optimizer
    make = optimizer_class.__init__

    def __init__(self: Any, params: Any, defaults: Named) -> None:
        make(self, params, defaults)
        defaults = self.defaults
        if not isinstance(defaults, dict) or defaults.get("foreach") or defaults.get("fused"):
            return
        for name, value in values.items():
            if name not in defaults or value is None or name == "fused" and not bears_fused(torch, self):
                continue
            was, defaults[name] = defaults[name], value
            for group in self.param_groups:
                if group.get(name) is was:
                    group[name] = value

    patch.put(optimizer_class, "__init__", __init__)


def bears_fused(torch: Torch, optimizer: Optimizer) -> bool:
    """Whether it has a fused form for what it updates: Adagrad's runs on no GPU, and none takes complex numbers."""
    if "fused" not in optimizer.defaults or optimizer.defaults.get("differentiable"):
        return False
    module: Any = sys.modules.get(type(optimizer).__module__)
    try:
        is_on_host_alone = "cuda_unsupported=True" in inspect.getsource(module)
    except (OSError, TypeError):
        is_on_host_alone = False
    return not is_on_host_alone and all(torch.is_floating_point(it) for group in optimizer.param_groups for it in group["params"])


def update_in_chunks(
    torch: Torch, remedy: str, parameters: Parameters, here: Callable[[Optimizer, list[Tensor]], AbstractContextManager[Any]], in_slices: Function | None = None
) -> None:
    """Every optimizer steps for some parameters at a time, each time within `here(optimizer, chunk)`. `in_slices(optimizer,
    parameter, most, step)` is given each that is larger than a chunk, and answers whether it has updated it."""
    optimizer_class = torch.optim.Optimizer
    hook_step = optimizer_class.profile_hook_step
    most = parameters.get("chunk", 64 << 20)

    def in_chunks(step: Function) -> Function:
        """The bare `step` of a class, so that what PyTorch hooks to a step is called once."""

        @functools.wraps(step)
        def stepped(optimizer: Optimizer, closure: Any = None) -> Any:
            if isinstance(optimizer, torch.optim.LBFGS):
                raise unsuited(remedy, "L-BFGS, whose state cannot be split")
            loss = None
            if closure is not None:
                with torch.enable_grad():
                    loss = closure()
            groups = optimizer.param_groups
            try:
                for group, chunk in _chunks(groups, most):
                    optimizer.param_groups = [dict(group, params=chunk)]
                    if in_slices is not None and bytes_of(chunk[0]) > most and in_slices(optimizer, chunk[0], most, step):
                        continue
                    with here(optimizer, chunk):
                        step(optimizer)
            finally:
                optimizer.param_groups = groups
            return loss

        return stepped

    patch.put(optimizer_class, "profile_hook_step", staticmethod(lambda step: hook_step(in_chunks(step))))


def bytes_of(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _chunks(groups: list[Named], most: int) -> Iterator[tuple[Named, list[Tensor]]]:
    """`(group, parameters)` whose parameters are about `most` bytes, in order; what is larger comes alone."""
    for group in groups:
        chunk: list[Tensor]
        chunk, size = [], 0
        for parameter in group["params"]:
            if parameter.grad is None:
                continue
            if chunk and bytes_of(parameter) > most:
                yield group, chunk
                chunk, size = [], 0
            chunk.append(parameter)
            size += bytes_of(parameter)
            if size >= most:
                yield group, chunk
                chunk, size = [], 0
        if chunk:
            yield group, chunk
