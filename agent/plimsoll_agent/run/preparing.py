"""What libraries run to prepare something: it is no part of the training, and no evaluation.

    a pipeline    a stage runs on zeros once, to learn what it gives to the next one
    a checkpoint  `get_state_dict` and `set_state_dict` have an optimizer step with zeros, so that it makes its state
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from plimsoll_agent import patch
from plimsoll_agent.run.after_import import after_import

if TYPE_CHECKING:
    from plimsoll_agent.kinds import Function
    from plimsoll_agent.run.phases import Phases

PREPARES = (
    ("torch.distributed.pipelining.stage", "_PipelineStageBase", "_shape_inference"),
    ("torch.distributed.pipelining.stage", "_PipelineStage", "_shape_inference"),
    ("torch.distributed.pipelining.stage", "PipelineStage", "_shape_inference"),
    ("torch.distributed.checkpoint.state_dict", "", "_init_optim_state"),
)
"""Modules, classes in them, and functions of these; PyTorch's releases have the shape inference in different classes."""


def install(phases: Phases) -> None:
    """Takes its places as soon as the libraries are imported."""
    for module in dict.fromkeys(it[0] for it in PREPARES):
        after_import(module, functools.partial(_wrap, phases))


def _wrap(phases: Phases, module: Any) -> None:
    for name, owner, function in PREPARES:
        where = getattr(module, owner, None) if owner else module
        if module.__name__ == name and where is not None and function in vars(where):
            patch.replace(where, function, functools.partial(_set_aside, phases))


def _set_aside(phases: Phases, run: Function) -> Function:
    def prepares(*args: Any, **kwargs: Any) -> Any:
        before, phases.is_set_aside = phases.is_set_aside, True
        try:
            return run(*args, **kwargs)
        finally:
            phases.is_set_aside = before

    return prepares
