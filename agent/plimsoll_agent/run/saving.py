"""Marks where libraries save a model, and where they merge adapters into it: each has a peak of its own.

PyTorch's own `torch.save` copies a tensor at a time to the host and takes nothing of the device.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from plimsoll_agent import patch
from plimsoll_agent.run.after_import import after_import
from plimsoll_agent.run.phases import MERGING, SAVING

if TYPE_CHECKING:
    from plimsoll_agent.kinds import Function
    from plimsoll_agent.run.phases import Phases

FUNCTIONS = (
    ("transformers.trainer", "Trainer", "_save_checkpoint", SAVING),
    ("transformers.modeling_utils", "PreTrainedModel", "save_pretrained", SAVING),
    ("peft.peft_model", "PeftModel", "save_pretrained", SAVING),
    ("peft.tuners.tuners_utils", "BaseTuner", "merge_and_unload", MERGING),
    ("peft.tuners.tuners_utils", "BaseTuner", "merge_adapter", MERGING),
)
"""Modules, classes in them, functions of these, and what they do."""


def install(phases: Phases) -> None:
    """Takes its places as soon as the libraries are imported."""
    for module in dict.fromkeys(it[0] for it in FUNCTIONS):
        after_import(module, functools.partial(_wrap, phases))


def _wrap(phases: Phases, module: Any) -> None:
    for name, owner, function, phase in FUNCTIONS:
        where = getattr(module, owner, None)
        if module.__name__ == name and where is not None and function in vars(where):
            patch.replace(where, function, functools.partial(_marked, phases, phase))


def _marked(phases: Phases, phase: str, run: Function) -> Function:
    def marked(*args: Any, **kwargs: Any) -> Any:
        began = phases.begin(phase)
        try:
            return run(*args, **kwargs)
        finally:
            if began:
                phases.end(phase)

    return marked
