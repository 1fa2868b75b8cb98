"""Makes trainers of libraries, which decide when to validate, validate now.

Lightning's decides by the length of a loader, so one that ends early brings no validation; told to stop, it validates, saves
and ends. The one of transformers validates and saves after the step in which it is asked to. Both count epochs and steps where callbacks read them.
"""

from __future__ import annotations

import gc
import math
import sys
from typing import TYPE_CHECKING, Any

from plimsoll_agent import patch
from plimsoll_agent.run.after_import import after_import
from plimsoll_agent.run.extent import Numbered
from plimsoll_agent.run.guard import guarded

if TYPE_CHECKING:
    from collections.abc import Callable

    from plimsoll_agent.kinds import Function

LIGHTNING = ("lightning.pytorch", "pytorch_lightning")


def validate_now() -> bool | None:
    """Asks every trainer that is training. None if there is none, else whether one of them validates at all."""
    lightning = _of_lightning()
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


def end_when_asked() -> bool:
    """Whether one that is training ends once it has validated: Lightning's."""
    return any(it.training for it in _all(*_of_lightning()))


def have_whole_epochs(are_cut: Callable[[], bool]) -> None:
    """Where epochs `are_cut`, the trainer of transformers counts each as a whole one: it would begin the second as epoch 0.06."""

    def ends(on_epoch_end: Function) -> Function:
        def ends_whole(handler: Any, args: Any, state: Any, control: Any) -> Any:
            if are_cut():
                _to_the_next(state)
            return on_epoch_end(handler, args, state, control)

        return ends_whole

    after_import("transformers.trainer_callback", lambda module: patch.replace(module.CallbackHandler, "on_epoch_end", ends))


@guarded
def _to_the_next(state: Any) -> None:
    state.epoch = float(math.ceil(state.epoch or 0))


def counters() -> tuple[list[Any], list[Numbered]]:
    """The callbacks of Lightning's trainers that are training, and what they and those of transformers count: epochs, each of which is fed by a data
    loader, and steps."""
    callbacks: list[Any] = []
    found: list[Numbered] = []

    def counts(epoch: int, epochs: Any, step: int, steps: Any) -> None:
        for name, now, turns in (("epoch", epoch, epochs), ("global_step", step, steps)):
            most = turns if type(turns) is int and now < turns else None
            found.append(Numbered(None, name, now, now, most, name == "epoch"))

    for it in _all(*_of_transformers()):
        if it.is_in_train:
            counts(int(it.state.epoch or 0), it.state.num_train_epochs, it.state.global_step, it.state.max_steps)
    for it in _all(*_of_lightning()):
        if it.training:
            callbacks += it.callbacks
            counts(it.current_epoch, it.max_epochs, it.global_step, it.max_steps)
    return callbacks, found


def settings() -> list[tuple[str, bool]]:
    """What trainers of transformers are set to do every so often: `("eval_strategy", True)`."""
    names = ("eval_strategy", "evaluation_strategy", "save_strategy")
    return [(name, _does(it.args, name)) for it in _all(*_of_transformers()) for name in names]


def _of_lightning() -> tuple[Any, ...]:
    return tuple(sys.modules[name].Trainer for name in LIGHTNING if hasattr(sys.modules.get(name), "Trainer"))


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
