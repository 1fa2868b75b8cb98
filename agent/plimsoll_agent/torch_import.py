"""Notices `import torch`, and costs nothing until then.

A finder on `sys.meta_path` answers for the one name `torch`: it finds what would have been found
anyway and puts a thin loader around it. Looking torch up without importing it (as
`transformers.is_torch_available` does) triggers nothing.
"""

from __future__ import annotations

import atexit
import os
import sys

TYPE_CHECKING = False  # As typing has it, which is not imported for this.
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any


def watch() -> None:
    """From now on the first real load of torch starts the agent. Called once, at start-up."""
    if "torch" not in sys.modules:
        sys.meta_path.insert(0, _Finder())


class _Finder:
    """Answers for `torch` only."""

    def __init__(self) -> None:
        self._looking = False
        self._missed = False

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != "torch" or self._looking:
            return None
        self._looking = True
        try:
            spec = _found_by_others(self, name, path, target)
        finally:
            self._looking = False
        if spec is None or spec.loader is None:
            self._remember_that_it_is_missing()
            return None
        if not isinstance(spec.loader, _Loader):
            spec.loader = _Loader(spec.loader)  # type: ignore[assignment]
        return spec

    def _remember_that_it_is_missing(self) -> None:
        # Only a program that dies of it is worth a line, so the question is asked at its end.
        if not self._missed:
            self._missed = True
            atexit.register(_report_missing_torch, os.getpid())


def _found_by_others(me: Any, name: str, path: Sequence[str] | None, target: ModuleType | None) -> ModuleSpec | None:
    for finder in list(sys.meta_path):
        find_spec = getattr(finder, "find_spec", None)
        if finder is me or find_spec is None:
            continue
        spec = find_spec(name, path, target)
        if spec is not None:
            return spec
    return None


class _Loader:
    """torch's own loader, with our check before it and our installation after it."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        # torch and its users shall see the loader that Python chose.
        module.__spec__.loader = self._loader  # type: ignore[union-attr]
        module.__loader__ = self._loader
        supported = _is_supported(module.__spec__.origin)  # type: ignore[union-attr]
        self._loader.exec_module(module)
        from plimsoll_agent import settings

        if not supported or settings.mode() == "nursery":
            return  # A nursery's children install the agent for themselves.
        from plimsoll_agent import launcher
        from plimsoll_agent.run.refusal import CannotApply

        try:
            if settings.mode() == "predict" and launcher.is_here():
                launcher.wait(module)
                return  # It becomes a rank, and then installs the agent.
            from plimsoll_agent import agent

            agent.install(module)
        except CannotApply:
            raise
        except Exception as error:
            print("plimsoll: the agent could not start: %r" % (error,), file=sys.stderr)


def _is_supported(origin: Any) -> bool:
    """Whether the agent knows this torch. Without it there is no prediction and no plan, so the program ends here;
    a training on the machine's own GPU goes on, without a recording."""
    from plimsoll_agent import torch_builds

    build = torch_builds.installed(origin)
    found = torch_builds.objection(build)
    if found is None:
        return True
    from plimsoll_agent import settings
    from plimsoll_agent.run.recording import Recording

    reason, sentence = found
    recording = Recording(settings.session() or os.devnull)
    recording.write("unsupported", reason=reason, text=sentence, torch=build.version, cuda=build.cuda)
    if settings.mode() == "run" and not settings.has_plan():
        return False
    # No message: the command line says the sentence once, however many processes ended here.
    raise SystemExit(torch_builds.EXIT_CODE)


def _report_missing_torch(pid: int) -> None:
    """At exit, if the program died because torch is not installed."""
    error = getattr(sys, "last_value", None)
    if os.getpid() != pid or not isinstance(error, ImportError):
        return
    if (error.name or "").split(".")[0] != "torch":
        return
    from plimsoll_agent import settings
    from plimsoll_agent.run import ending
    from plimsoll_agent.run.recording import Recording

    ending.without_torch(Recording(settings.session() or os.devnull), error)
