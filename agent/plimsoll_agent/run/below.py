"""Runs an operation that a dispatch mode of the agent has caught as it would have run without the mode.

Under `inference_mode()` there is no autograd above a mode that takes operations apart, so it catches whole ones that consist of
others (`interpolate`, `einsum`). Autocast has passed by then and is off for whatever the mode calls, though it is these others whose precision it
chooses: what should be float32 would be made in halves. Here it is on again for them.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
from typing import TYPE_CHECKING, Any

from plimsoll_agent import patch
from plimsoll_agent.run.guard import guarded

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from plimsoll_agent.kinds import Arguments, Function, Named, Operator, Torch

_DEVICES = {"cuda": "AutocastCUDA", "cpu": "AutocastCPU"}


def goes_on(torch: Torch, function: Operator, args: Sequence[Any], kwargs: Named) -> Any:
    """What `function`, which a mode was given, returns."""
    if torch.is_inference_mode_enabled() and _consists_of_others(torch, function):
        autocast = _settings(torch).on()
        if autocast:
            tls = torch._C
            excluded = tls._dispatch_tls_local_exclude_set()
            for device in autocast:
                excluded = excluded.remove(getattr(tls.DispatchKey, _DEVICES[device]))
            with tls._ForceDispatchKeyGuard(tls._dispatch_tls_local_include_set(), excluded):
                return function(*args, **kwargs)
    return function(*args, **kwargs)


def uncompiled(torch: Torch) -> AbstractContextManager[None]:
    """While this is entered, what was compiled runs as it was written. Dynamo meets a mode by stepping aside from the code that it would
    compile, and never comes back to it: the script would be uncompiled from there on. Before PyTorch 2.6 that cannot be told."""
    stance = getattr(getattr(torch, "compiler", None), "set_stance", None)
    if stance is None or "torch._dynamo" not in sys.modules or _is_compiled_here(torch):
        return contextlib.nullcontext()
    return stance("force_eager")


def _is_compiled_here(torch: Torch) -> bool:
    """Whether the code that runs is what Dynamo has compiled, or is compiling: no stance may be taken there."""
    from torch._C._dynamo.eval_frame import get_eval_frame_callback

    return get_eval_frame_callback() not in (None, False)


def entered(torch: Torch) -> None:
    """To be called before a mode is entered: from then on it is known where autocast is on, which nobody can ask inside of the mode."""
    _settings(torch)


@functools.cache
def _consists_of_others(torch: Torch, function: Operator) -> bool:
    return function.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd)


@functools.lru_cache(maxsize=1)
def _settings(torch: Torch) -> _Settings:
    return _Settings(torch)


class _Settings(threading.local):
    """For which devices autocast is on, in each thread."""

    def __init__(self, torch: Torch) -> None:
        # Each thread comes here on its first look; `torch.autocast` asks for the function whenever it is entered or left.
        self._is_on = {it: torch.is_autocast_enabled(it) for it in _DEVICES}
        patch.replace(torch, "set_autocast_enabled", functools.partial(_followed, torch), once=True)

    def on(self) -> list[str]:
        return [device for device, is_on in self._is_on.items() if is_on]

    def set(self, device: str, is_on: bool) -> None:
        if device in self._is_on:
            self._is_on[device] = is_on


def _followed(torch: Torch, set_enabled: Function) -> Function:
    def set_autocast_enabled(*args: Any) -> None:
        set_enabled(*args)
        _remember(torch, args)

    return set_autocast_enabled


@guarded
def _remember(torch: Torch, args: Arguments) -> None:
    device, is_on = args if len(args) == 2 else ("cuda", args[0])
    _settings(torch).set(str(device), bool(is_on))
