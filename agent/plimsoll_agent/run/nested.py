"""Finds the tensors in the arguments and results of a call: nested tuples, lists, dictionaries, dataclasses."""

from __future__ import annotations

import copy
import dataclasses
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from plimsoll_agent.kinds import Named, Nested, Tensor, Torch

_DEEPEST = 6


def tensors_in(torch: Torch, value: Nested, depth: int = _DEEPEST) -> list[Tensor]:
    """Every tensor in nested containers."""
    if isinstance(value, torch.Tensor):
        return [value]
    if depth and isinstance(value, dict):
        return [t for it in value.values() for t in tensors_in(torch, it, depth - 1)]
    if depth and isinstance(value, (list, tuple)):
        return [t for it in value for t in tensors_in(torch, it, depth - 1)]
    if depth and is_record(value):
        return [t for it in fields_of(value).values() for t in tensors_in(torch, it, depth - 1)]
    return []


def is_record(value: Any) -> bool:
    """Whether it is an instance of a dataclass that is nothing else: Hugging Face's outputs are dicts, too."""
    return dataclasses.is_dataclass(value) and not isinstance(value, (type, dict, list, tuple))


def fields_of(record: Any) -> Named:
    """What each field of a dataclass's instance is."""
    return {it.name: getattr(record, it.name) for it in dataclasses.fields(record) if hasattr(record, it.name)}


def with_fields(record: Any, fields: Named) -> Any:
    """Another one like it that has these; nothing of its own runs."""
    record = copy.copy(record)
    for name, value in fields.items():
        object.__setattr__(record, name, value)
    return record


def rebuilt(torch: Torch, value: Nested, function: Callable[[Tensor], Any], depth: int = _DEEPEST) -> Nested:
    """`value` with `function` of each tensor in its place."""
    if isinstance(value, torch.Tensor):
        return function(value)
    if depth and isinstance(value, dict):
        changed = {k: rebuilt(torch, v, function, depth - 1) for k, v in value.items()}
        return changed if type(value) is dict else type(value)(changed)
    if depth and isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(rebuilt(torch, it, function, depth - 1) for it in value))
    if depth and isinstance(value, (list, tuple)):
        return type(value)(rebuilt(torch, it, function, depth - 1) for it in value)
    if depth and is_record(value):
        changed = {k: rebuilt(torch, v, function, depth - 1) for k, v in fields_of(value).items()}
        return with_fields(value, changed)
    return value
