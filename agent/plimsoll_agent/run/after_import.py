"""Calls a function with a module once that is imported."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec

from plimsoll_agent.run.guard import failed

TYPE_CHECKING = False  # As typing has it, which is not imported for this.
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import ModuleType
    from typing import Any


def after_import(name: str, act: Callable[[ModuleType], object]) -> None:
    """Calls `act` with the module of this name, now or when it is imported."""
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None)
    if module is not None and getattr(spec, "_initializing", False) and isinstance(spec, ModuleSpec):
        # It is what imports PyTorch, and the agent with that: most of it is to come.
        spec.__class__ = _Unfinished
        spec.__dict__.setdefault("_plimsoll", []).append(lambda: act(module))
    elif module is not None:
        act(module)
    else:
        sys.meta_path.insert(0, _Finder(name, act))


class _Unfinished(ModuleSpec):
    """That of a module whose code runs: Python notes here when it has come to its end."""

    _plimsoll: list[Callable[[], object]]

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "_initializing" and not value:
            self.__class__ = ModuleSpec  # type: ignore[assignment]
            for act in self.__dict__.pop("_plimsoll") if self.name in sys.modules else ():
                _do(self.name, act)


def _do(name: str, act: Callable[[], object]) -> None:
    try:
        act()
    except Exception as error:
        failed("after_import " + name, error)


class _Finder:
    """Answers for the one module, once, with the loader that would have been found."""

    def __init__(self, name: str, act: Callable[[ModuleType], object]) -> None:
        self._name, self._act = name, act

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != self._name:
            return None
        sys.meta_path.remove(self)
        spec = None
        for finder in list(sys.meta_path):
            find_spec = getattr(finder, "find_spec", None)
            spec = find_spec(name, path, target) if find_spec is not None else None
            if spec is not None:
                break
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                _do(name, lambda: self._act(module))

            spec.loader.exec_module = exec_module
        return spec
