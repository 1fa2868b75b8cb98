"""What the samples of a data set say without a step: whether one is far larger than those that a run saw.

A run sees few batches. Which sample takes the most memory may be plain from its size: boxes, nodes, words, pixels. So some are looked at,
for a bounded time, where nothing of the script can notice (`aside`).
"""

from __future__ import annotations

import math
import sys
import time
import weakref
from typing import TYPE_CHECKING, Any

from plimsoll_agent import patch
from plimsoll_agent.inputs import aside
from plimsoll_agent.run.guard import guarded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from plimsoll_agent.kinds import Function, Named, Torch
    from plimsoll_agent.run.recording import Recording

LEAST_SECONDS, MOST_SECONDS = 3.0, 8.0
"""How long samples are looked at: a third of what the run took so far, within these."""

LARGE = 1 << 16
"""A tensor of random numbers of so many elements gets its shape there, and no numbers."""

MOST_SAMPLES = 100_000

FAR, FEWEST = 2.0, 16
"""A sample is far larger if a part of it has so many times as many numbers, and so many more."""

MOST_REMEMBERED = 4096
"""Batches whose samples are known."""

_MAP = 0
"""`torch.utils.data._DatasetKind.Map`."""


class Samples:
    """Which samples loaders have given, and what others are like."""

    def __init__(self, torch: Torch, recording: Recording) -> None:
        self._torch, self._recording = torch, recording
        self._given: weakref.WeakKeyDictionary[Any, list[Any]] = weakref.WeakKeyDictionary()
        self._worst: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        self._puts_worst_first = False
        self._has_looked = False

    def install(self, puts_worst_first: bool = False) -> None:
        """Takes its place in PyTorch's loader. With `puts_worst_first` each batch begins with the sample that is the largest by far."""
        from torch.utils.data.dataloader import _BaseDataLoaderIter

        self._puts_worst_first = puts_worst_first
        choose = _BaseDataLoaderIter._next_index

        def _next_index(iterator: Any) -> Any:
            return self._chosen(iterator, choose(iterator))

        patch.put(_BaseDataLoaderIter, "_next_index", _next_index)

    def _chosen(self, iterator: Any, index: Any) -> Any:
        res = self._remembered(iterator, index)
        return index if res is None else res

    @guarded
    def _remembered(self, iterator: Any, index: Any) -> Any:
        if getattr(iterator, "_dataset_kind", None) != _MAP:
            return None
        if self._puts_worst_first:
            if iterator not in self._worst:
                self._worst[iterator] = self._largest(iterator)
            worst = self._worst[iterator]
            if worst is not None:
                index = [worst, *index[1:]] if isinstance(index, list) and index else worst if isinstance(index, int) else index
        given = self._given.setdefault(iterator, [])
        if len(given) < MOST_REMEMBERED:
            given.append(index)
        return index

    def _largest(self, iterator: Any) -> int | None:
        """The sample of its data set that is the largest by far; None if there is none."""
        found = self._look(iterator._dataset, [])
        if found is None or "worst" not in found:
            if found is not None:
                self._recording.note("worst-sample", "--worst-sample found no sample that is far larger than most: plimsoll looked at %d of %d" % (found["looked"], found["of"]))
            return None
        self._recording.note("worst-sample", "--worst-sample put sample %d into every batch: %s, most have %s" % (found["worst"], _has(found), _number(found["usual"])))
        return int(found["worst"])

    @guarded
    def look(self, iterators: Iterable[Any]) -> None:
        """Before the loaders that feed training are ended: what they would have given."""
        if self._has_looked or self._puts_worst_first:
            return
        for iterator in iterators:
            if getattr(iterator, "_dataset_kind", None) != _MAP:
                continue
            self._has_looked = True
            seen = [it for batch in self._given.get(iterator, []) for it in (batch if isinstance(batch, list) else [batch])]
            found = self._look(iterator._dataset, [it for it in seen if type(it) is int])
            if found is not None and "worst" in found:
                text = "sample %d of the data set is far larger than those of the batches seen: %s, those seen have at most %s. Its batch may need more memory; --worst-sample runs one with it"
                self._recording.note("larger-sample", text % (found["worst"], _has(found), _number(found["usual"])))

    def _look(self, dataset: Any, seen: list[int]) -> Named | None:
        """What a child finds; None if it may not be asked, or says nothing. `seen` were in batches already: the largest of these is
        compared with; without any, the middle of all is."""
        data = sys.modules["torch.utils.data"]
        if type(dataset) is data.TensorDataset:
            return None  # Its samples are all alike.
        count = len(dataset)
        if count < 2:
            return None
        seconds = min(max(self._recording.seconds() / 3, LEAST_SECONDS), MOST_SECONDS)
        found = aside.ask(self._torch, lambda tell: _in_a_child(self._torch, dataset, count, seen, seconds, tell), seconds + 2.0)
        return found if isinstance(found, dict) else None


def _has(found: Named) -> str:
    part = " (%s)" % found["part"] if found["part"] else ""
    return "it has %s numbers%s" % (_number(found["size"]), part)


def _number(size: int) -> str:
    return format(size, ",")


def _in_a_child(torch: Torch, dataset: Any, count: int, seen: list[int], seconds: float, tell: Callable[[Named], object]) -> None:
    """Writes what was found so far, a line each time that more is known: the child may be ended at any moment."""
    until = time.monotonic() + seconds
    values_again = _without_values(torch)
    largest_seen: dict[str, int] = {}
    sizes: dict[str, list[tuple[int, int]]] = {}
    looked: set[int]
    looked, told = set(), 0.0
    for index in _order(count, seen):
        if until <= time.monotonic() or MOST_SAMPLES <= len(looked):
            break
        try:
            sample = dataset[index]
        except PermissionError:
            break
        except Exception:
            values_again()
            try:
                sample = dataset[index]
            except Exception:
                break  # It cannot be asked here, or not that sample.
        parts = dict(_parts(torch, sample, "", 0))
        looked.add(index)
        for part, size in parts.items():
            sizes.setdefault(part, []).append((size, index))
            if index in seen:
                largest_seen[part] = max(size, largest_seen.get(part, 0))
        if told + 0.5 <= time.monotonic():
            told = time.monotonic()
            tell(_found(sizes, largest_seen, len(looked), count, bool(seen)))
    tell(_found(sizes, largest_seen, len(looked), count, bool(seen)))


def _without_values(torch: Torch) -> Callable[[], object]:
    """From now on large tensors of new numbers have none. What is returned undoes it: something may be written into one."""
    names = ("randn", "rand", "zeros", "ones", "empty")
    originals = {name: getattr(torch, name) for name in names}

    def without(original: Function) -> Function:
        def make(*args: Any, **kwargs: Any) -> Any:
            size = args[0] if len(args) == 1 and isinstance(args[0], (tuple, list)) else args
            if all(type(it) is int for it in size) and LARGE <= math.prod(size):
                return original((1,) * len(size), **kwargs).expand(size)
            return original(*args, **kwargs)

        return make

    def again() -> None:
        for name, original in originals.items():
            setattr(torch, name, original)

    for name, original in originals.items():
        setattr(torch, name, without(original))
    return again


def _found(sizes: dict[str, list[tuple[int, int]]], largest_seen: dict[str, int], looked: int, count: int, has_seen: bool) -> Named:
    res: Named = {"looked": looked, "of": count}
    best = FAR
    for part, each in sizes.items():
        size, index = max(each)
        usual = largest_seen.get(part, 0) if has_seen else sorted(each)[len(each) // 2][0]
        if usual + FEWEST <= size and best * max(usual, 1) <= size:
            best = size / max(usual, 1)
            res.update(worst=index, part=part, size=size, usual=usual)
    return res


def _order(count: int, seen: list[int]) -> Iterator[int]:
    """Those that were seen, then the others, so that those of a part of the time lie all over the data set."""
    known = list(dict.fromkeys(it for it in seen if 0 <= it < count))[:64]
    yield from known
    done = set(known)
    yield from (index for index in aside.spread(count) if index not in done)


def _parts(torch: Torch, sample: Any, path: str, depth: int) -> Iterator[tuple[str, int]]:
    """How many numbers, letters or things each part of a sample has."""
    if isinstance(sample, torch.Tensor):
        yield path, sample.numel()
    elif isinstance(sample, (str, bytes)):
        yield path, len(sample)
    elif isinstance(sample, dict):
        for key, value in list(sample.items())[:64]:
            if depth < 4:
                yield from _parts(torch, value, "%s[%r]" % (path, key), depth + 1)
    elif isinstance(sample, (list, tuple)):
        is_row = isinstance(sample, list) and (len(sample) > 8 or all(isinstance(it, (int, float, str)) for it in sample))
        if is_row or 4 <= depth:
            yield path, len(sample)
        else:
            for i, value in enumerate(sample[:8]):
                yield from _parts(torch, value, "%s[%d]" % (path, i), depth + 1)
    elif hasattr(sample, "to_dict") and depth < 4:  # A graph of torch_geometric's.
        yield from _parts(torch, sample.to_dict(), path, depth + 1)
    elif isinstance(getattr(sample, "size", None), int) and hasattr(sample, "dtype"):
        yield path, sample.size  # An array of NumPy's.
    elif isinstance(getattr(sample, "size", None), tuple) and hasattr(sample, "mode"):
        yield path, sample.size[0] * sample.size[1]  # A picture of PIL's.
