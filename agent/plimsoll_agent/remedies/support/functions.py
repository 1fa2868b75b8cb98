"""Functions that a script compiles and that call its model, for example to compute the loss. Remedies hook into calls of a model, which is
impossible inside a call that Dynamo traces. So such a function runs uncompiled, and the model that it calls is compiled by itself.

A function is assumed to call a model that it can reach: its arguments, what it closes over, the globals that it names. One that
reaches a model and calls none runs as it was written, too.
"""

from __future__ import annotations

import functools
import inspect
import threading
from typing import TYPE_CHECKING, Any

from plimsoll_agent import patch
from plimsoll_agent.remedies.support.again import is_compiled_itself

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import CodeType

    from plimsoll_agent.kinds import Arguments, Function, Module, Named, Torch
    from plimsoll_agent.remedies.support.hooks import Hooks


def reach_into(torch: Torch, hooks: Hooks) -> None:
    """What is compiled from here on. PyTorch before 2.2 cannot compile a model in place."""
    if not hasattr(torch.nn.Module, "compile"):
        return
    compile, thread = torch.compile, threading.local()

    def around(module: Module, call: Function, args: Arguments, kwargs: Named) -> Any:
        options = getattr(thread, "options", None)
        if options is not None and not is_compiled_itself(module):
            module.compile(**options)
        return call(*args, **kwargs)

    def compiled(*args: Any, **options: Any) -> Any:
        result = compile(*args, **options)
        function: Any = options.pop("model", None) or (args[0] if args else None)
        if options.get("disable") or not _is_function(torch, function):
            return result
        calls_model: list[bool] = []

        @functools.wraps(result)
        def either(*args: Any, **kwargs: Any) -> Any:
            if hooks.is_inside or torch.compiler.is_compiling():
                return result(*args, **kwargs)
            if not calls_model:
                calls_model.append(any(_has_model(torch, it) for it in _reached(function, args, kwargs)))
            if not calls_model[0]:
                return result(*args, **kwargs)
            before, thread.options = getattr(thread, "options", None), options
            try:
                return function(*args, **kwargs)
            finally:
                thread.options = before

        return either

    patch.put(torch, "compile", compiled)
    hooks.around_call(around, outermost=True)


def _is_function(torch: Torch, it: Any) -> bool:
    return inspect.isfunction(it) or inspect.ismethod(it) and not isinstance(it.__self__, torch.nn.Module)


def _reached(function: Any, args: Arguments, kwargs: Named) -> Iterator[Any]:
    """The values that it can reach."""
    yield from (*args, *kwargs.values())
    if inspect.ismethod(function):
        yield from vars(function.__self__).values() if hasattr(function.__self__, "__dict__") else ()
        function = function.__func__
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # Empty so far.
            pass
    yield from (function.__globals__[it] for it in _names(function.__code__) if it in function.__globals__)


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for it in code.co_consts:
        if inspect.iscode(it):
            yield from _names(it)


def _has_model(torch: Torch, value: Any) -> bool:
    """Itself, or one of those in a list or a dictionary."""
    values = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else [value]
    return any(isinstance(it, torch.nn.Module) and next(it.parameters(), None) is not None for it in values)
