"""Calls a function with a module once that is imported."""

from __future__ import annotations

import sys

from plimsoll_agent.run.guard import failed

TYPE_CHECKING = False  # As typing has it, which is not imported for this.
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType


def after_import(name: str, act: Callable[[ModuleType], object]) -> None:
    """Calls `act` with the module of this name, now or when it is imported."""
    if name in sys.modules:
        act(sys.modules[name])
    else:
        sys.meta_path.insert(0, _Finder(name, act))


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
                try:
                    self._act(module)
                except Exception as error:
                    failed("after_import " + name, error)

            spec.loader.exec_module = exec_module
        return spec
