"""Runs a part of a model again, or once for each part of a batch, without side effects: random numbers, batch-norm statistics,
spectral norms and caches are as after one run."""

from __future__ import annotations

import contextlib
import weakref
from typing import TYPE_CHECKING, Any

from plimsoll_agent import patch
from plimsoll_agent.run.host_random import HostRandom

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from plimsoll_agent.kinds import Function, Module, Named, Torch


def as_before(torch: Torch, module: Module, choices: HostRandom | None = None) -> tuple[Any, _EachTime]:
    """For PyTorch's checkpoints: what is around the first run, and around the one in backward, which has to decide
    as the first one did and must leave no trace."""
    return contextlib.nullcontext(), _EachTime(torch, module, choices or HostRandom())


def autocast_of(torch: Torch) -> list[Any]:
    """The precision of now, as `torch.autocast` takes it."""
    cached = torch.is_autocast_cache_enabled()
    return [
        {"device_type": it, "dtype": torch.get_autocast_dtype(it), "enabled": torch.is_autocast_enabled(it), "cache_enabled": cached}
        for it in ("cuda", "cpu")
    ]


def bear_reentrant_checkpoints(torch: Torch) -> None:
    """From now on a checkpoint that asks for the older way (`use_reentrant=True`) gets the newer one: the older bears no
    `torch.autograd.grad` and no other checkpoint around it. As there, what is given no tensor that wants a gradient gives none."""
    from torch.utils import checkpoint

    if getattr(checkpoint.CheckpointFunction, "is_ours", False):
        return

    class CheckpointFunction(checkpoint.CheckpointFunction):
        is_ours = True

        @staticmethod
        def apply(function: Function, preserve_rng_state: bool, *args: Any) -> Any:
            if not any(isinstance(it, torch.Tensor) and it.requires_grad for it in args):
                with torch.no_grad():
                    return function(*args)
            return checkpoint.checkpoint(function, *args, use_reentrant=False, preserve_rng_state=preserve_rng_state)

    checkpoint.CheckpointFunction = CheckpointFunction


class _EachTime:
    """A part runs again as often as backward goes through it: once, or more where a gradient has a gradient."""

    def __init__(self, *given: Any) -> None:
        self._given = given
        self._inside: list[AbstractContextManager[Any]] = []

    def __enter__(self) -> None:
        self._inside.append(_again(*self._given))
        self._inside[-1].__enter__()

    def __exit__(self, *error: Any) -> Any:
        return self._inside.pop().__exit__(*error)


@contextlib.contextmanager
def _again(torch: Torch, module: Module, choices: HostRandom) -> Iterator[None]:
    now = HostRandom()
    choices.again()
    try:
        with statistics_kept(torch, module):
            yield
    finally:
        now.again()


@contextlib.contextmanager
def statistics_kept(torch: Torch, module: Module) -> Iterator[None]:
    """While a forward pass runs again, batch-norm must not count it again, and spectral norm must not go on.

    Batch-norm is given a momentum of zero, and nothing to count with. Without running statistics it would save other
    tensors for backward than it did the first time.
    """
    modules = [it for it in module.modules() if it.training]
    norms = [
        (it, it.momentum, it._buffers.get("num_batches_tracked"))
        for it in modules
        if isinstance(it, torch.nn.modules.batchnorm._NormBase) and it.track_running_stats
    ]
    for it, _, _ in norms:
        it.momentum = 0.0
        it._buffers["num_batches_tracked"] = None
    try:
        with spectral_kept(torch, module):
            yield
    finally:
        for it, momentum, count in norms:
            it.momentum = momentum
            it._buffers["num_batches_tracked"] = count


@contextlib.contextmanager
def spectral_kept(torch: Torch, module: Module, when: bool = True) -> Iterator[None]:
    """Spectral norms stay where they are: they go on once for a call, not once for each part of it."""
    spectral = [it for it in module.modules() if it.training and is_spectral(torch, it)] if when else []
    for it in spectral:
        it.training = False
    try:
        yield
    finally:
        for it in spectral:
            it.training = True


def is_spectral(torch: Torch, module: Module) -> bool:
    """Whether a module goes on with the vectors of a spectral norm when it is called: a parametrization or, the older
    way, a layer with a hook."""
    is_hook = any(type(it).__name__ == "SpectralNorm" for it in module._forward_pre_hooks.values())
    return is_hook or isinstance(module, torch.nn.utils.parametrizations._SpectralNorm)


def watch_other_weights(torch: Torch) -> None:
    """From now on `has_other_weights` knows of `torch.func.functional_call`, whatever it is given: parameters of another model,
    buffers."""
    from torch.nn.utils import stateless

    def counting(original: Function) -> Function:
        @contextlib.contextmanager
        def swapped(module: Module, *args: Any, **kwargs: Any) -> Iterator[None]:
            parts = list(module.modules())
            for it in parts:
                _swapped[it] = _swapped.get(it, 0) + 1
            try:
                with original(module, *args, **kwargs):
                    yield
            finally:
                for it in parts:
                    _swapped[it] -= 1

        return swapped

    patch.replace(stateless, "_reparametrize_module", counting, once=True)


_swapped: weakref.WeakKeyDictionary[Module, int] = weakref.WeakKeyDictionary()
"""How many calls give a module other weights now."""


def has_other_weights(torch: Torch, module: Module) -> bool:
    """Whether its weights are other tensors for this call (`torch.func.functional_call`, or a script's own way with computed ones or
    copies): run again in backward it would have its own."""
    if _swapped.get(module):
        return True
    return any(it.grad_fn is not None or not isinstance(it, torch.nn.Parameter) for it in module.parameters())


def is_cache(value: Any) -> bool:
    """Whether this is a key-value cache of transformers, which a forward pass writes into."""
    return any(it.__name__ == "Cache" and it.__module__.startswith("transformers") for it in type(value).__mro__)


@contextlib.contextmanager
def without_cache(module: Module, kwargs: Named) -> Iterator[None]:
    """Transformers fill an unused cache in training, too; its own checkpointing switches it off as well."""
    configs = {}
    if not any(is_cache(it) for it in kwargs.values()) and not kwargs.get("use_cache"):
        for part in module.modules():
            config: Any = getattr(part, "config", None)
            if getattr(config, "use_cache", False) is True:
                configs[id(config)] = config
    for config in configs.values():
        config.use_cache = False
    try:
        yield
    finally:
        for config in configs.values():
            config.use_cache = True
