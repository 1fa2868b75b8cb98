"""Marks where libraries save a model, and where they merge adapters into it: each has a peak of its own.

PyTorch's own `torch.save` copies a tensor at a time to the host and takes nothing of the device: it is only seen that it was called. On a phantom it
writes no checksums, a third of the processor time while 2 GB are saved: `torch.load` reads none, and the files are thrown away, unless somebody asked for
them (`--writes keep=DIR`), who gets numbers that nobody computed.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from plimsoll_agent import patch
from plimsoll_agent.run.after_import import after_import
from plimsoll_agent.run.guard import guarded
from plimsoll_agent.run.phases import MERGING, SAVING

if TYPE_CHECKING:
    from plimsoll_agent.kinds import Function, Torch
    from plimsoll_agent.run.phases import Phases

FUNCTIONS = (
    ("transformers.trainer", "Trainer", "_save_checkpoint", SAVING),
    ("transformers.modeling_utils", "PreTrainedModel", "save_pretrained", SAVING),
    ("peft.peft_model", "PeftModel", "save_pretrained", SAVING),
    ("peft.tuners.tuners_utils", "BaseTuner", "merge_and_unload", MERGING),
    ("peft.tuners.tuners_utils", "BaseTuner", "merge_adapter", MERGING),
)
"""Modules, classes in them, functions of these, and what they do."""


class Saving:
    """Whether the script has saved anything so far."""

    def __init__(self, phases: Phases) -> None:
        self._phases = phases
        self.was_seen = False

    def install(self) -> None:
        """Takes its places as soon as the libraries are imported."""
        for module in dict.fromkeys(it[0] for it in FUNCTIONS):
            after_import(module, self._wrap)

    def watch(self, torch: Torch) -> None:
        """Takes the place of PyTorch's own function, too."""
        patch.replace(torch, "save", functools.partial(self._seen, torch.serialization))

    def _wrap(self, module: Any) -> None:
        for name, owner, function, phase in FUNCTIONS:
            where = getattr(module, owner, None)
            if module.__name__ == name and where is not None and function in vars(where):
                patch.replace(where, function, functools.partial(self._marked, phase))

    def _seen(self, serialization: Any, save: Function) -> Function:
        def seen(*args: Any, **kwargs: Any) -> Any:
            self.was_seen = True
            wanted = _checksums(serialization, False)
            try:
                return save(*args, **kwargs)
            finally:
                if wanted is not None:
                    _checksums(serialization, wanted)

        return seen

    def _marked(self, phase: str, run: Function) -> Function:
        def marked(*args: Any, **kwargs: Any) -> Any:
            self.was_seen = self.was_seen or phase == SAVING
            began = self._phases.begin(phase)
            try:
                return run(*args, **kwargs)
            finally:
                if began:
                    self._phases.end(phase)

        return marked


@guarded
def _checksums(serialization: Any, are_written: bool) -> bool | None:
    """Sets whether `torch.save` writes them, and returns whether it did before; None if that failed."""
    before: bool = serialization.get_crc32_options()
    serialization.set_crc32_options(are_written)
    return before
