"""Makes trainers of libraries, which decide when to validate, validate now.

Lightning's decides by the length of a loader, so one that ends early brings no validation; told to stop, it validates, saves
and ends. The one of transformers validates and saves after the step in which it is asked to.
"""

from __future__ import annotations

import gc
import sys
from typing import Any

LIGHTNING = ("lightning.pytorch", "pytorch_lightning")


def validate_now() -> bool | None:
    """Asks every trainer that is training. None if there is none, else whether one of them validates at all."""
    lightning = tuple(sys.modules[name].Trainer for name in LIGHTNING if hasattr(sys.modules.get(name), "Trainer"))
    transformers = _of_transformers()
    if not lightning and not transformers:
        return None
    answers = []
    for it in _all(*lightning, *transformers):
        if isinstance(it, lightning):
            if it.training:
                it.should_stop = True
                answers.append(True)
        elif it.is_in_train:
            it.control.should_save = _does(it.args, "save_strategy")
            it.control.should_evaluate = _does(it.args, "eval_strategy") or _does(it.args, "evaluation_strategy")
            answers.append(it.control.should_evaluate)
    return any(answers) if answers else None


def settings() -> list[tuple[str, bool]]:
    """What trainers of transformers are set to do every so often: `("eval_strategy", True)`."""
    names = ("eval_strategy", "evaluation_strategy", "save_strategy")
    return [(name, _does(it.args, name)) for it in _all(*_of_transformers()) for name in names]


def collect_inputs() -> bool:
    """Whether the evaluation of one of transformers collects its inputs, for `compute_metrics`."""
    given = (it.args for it in _all(*_of_transformers()) if it.compute_metrics is not None)
    return any("inputs" in (getattr(it, "include_for_metrics", None) or ()) or getattr(it, "include_inputs_for_metrics", False) for it in given)


def _of_transformers() -> tuple[type, ...]:
    trainer = getattr(sys.modules.get("transformers.trainer"), "Trainer", None)
    return () if trainer is None else (trainer,)


def _all(*classes: type) -> list[Any]:
    """The objects of these classes and of those derived from them; every object is looked at, if there is any such class."""
    kinds, todo = set(), list(classes)
    while todo:
        kind = todo.pop()
        kinds.add(kind)
        todo += type.__subclasses__(kind)
    return [it for it in gc.get_objects() if type(it) in kinds] if kinds else []


def _does(arguments: Any, name: str) -> bool:
    strategy = getattr(arguments, name, "no")
    return getattr(strategy, "value", strategy) != "no"
