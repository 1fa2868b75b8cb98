"""At the first call of `torch.compile` the agent stops watching calls of modules: `torch.compile` would trace its wrappers."""

from __future__ import annotations

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
        self.after: Callable[[], object] = lambda: None
        """Called after each call of `torch.compile`."""

    def install(self) -> None:
        """Takes its place in PyTorch."""
        compile, after = self._torch.compile, self.after

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            if not kwargs.get("disable"):
                self._step_aside()
            res = compile(*args, **kwargs)
            after()
            return res

        patch.put(self._torch, "compile", wrapped)

    @guarded
    def _step_aside(self) -> None:
        if self._is_live():
            self._modules.step_aside()
            is_first = self._recording.note(
                "torch-compile",
                "torch.compile is in use, by the script or by a library: from there on the recording has no module "
                "paths and no forward phases",
            )
            if is_first:
                self._recording.write("compiles")
