"""At the first call of what `torch.compile` made the agent stops watching calls of modules: `torch.compile` would trace its wrappers.

What is decorated and never called changes nothing: libraries decorate functions of theirs when they are imported.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from plimsoll_agent import patch
from plimsoll_agent.run.guard import guarded

if TYPE_CHECKING:
    from collections.abc import Callable

    from plimsoll_agent.kinds import Torch
    from plimsoll_agent.run.modules import Modules
    from plimsoll_agent.run.recording import Recording


class Compiled:
    """Steps aside for what is compiled."""

    def __init__(self, torch: Torch, modules: Modules, recording: Recording, is_live: Callable[[], bool]) -> None:
        self._torch, self._modules, self._recording, self._is_live = torch, modules, recording, is_live
        self._first_call: patch.Replacement | None = None
        self.after: Callable[[], object] = lambda: None
        """Called after each call of `torch.compile`."""

    def install(self) -> None:
        """Takes its place in PyTorch."""
        compile, after = self._torch.compile, self.after

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            # A model that is compiled takes the call of its class along, which must be PyTorch's own.
            is_watched = self._unwatched()
            try:
                res = compile(*args, **kwargs)
            finally:
                if is_watched:
                    self._watched_again()
            if not kwargs.get("disable"):
                self._wait_for_a_call()
            after()
            return res

        patch.put(self._torch, "compile", wrapped)

    @guarded
    def _unwatched(self) -> bool:
        is_watching = self._modules.is_watching
        if is_watching:
            self._modules.watch(False)
        return is_watching

    @guarded
    def _watched_again(self) -> None:
        self._modules.watch(True)

    @guarded
    def _wait_for_a_call(self) -> None:
        """Each call of what is compiled asks Dynamo first what to do with it."""
        eval_frame = sys.modules.get("torch._dynamo.eval_frame")
        if self._modules.has_stepped_aside or self._first_call is not None or eval_frame is None:
            return  # Without Dynamo it was the half of a decorator that has its options.
        ask = getattr(eval_frame, "_callback_from_stance", None)
        if ask is None:
            self._step_aside()
            return

        def called(*args: Any) -> Any:
            if args and args[0] not in (None, False):  # What it asks when a call is over has nothing to compile.
                self._step_aside()
            return ask(*args)

        self._first_call = patch.put(eval_frame, "_callback_from_stance", called)

    @guarded
    def _step_aside(self) -> None:
        if self._is_live():
            if self._first_call is not None:
                self._first_call.undo()
            self._modules.step_aside()
            is_first = self._recording.note(
                "torch-compile",
                "torch.compile is in use, by the script or by a library: from there on the recording has no module "
                "paths and no forward phases",
            )
            if is_first:
                self._recording.write("compiles")
