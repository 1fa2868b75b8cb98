"""Runs the worst batches of the data first, so that a few steps show what all of an epoch may take.

Where samples differ in size (texts, sounds, graphs, pictures of several sizes) the batches that decide come up by chance. The index lists
of a loader's own sampler are drawn for some epochs ahead, in a child process, the sizes of the samples are read there, and the
batches that may be the worst are put together. The loader then begins with a small batch, the worst ones and the small one again, and training
goes on with the worst one, which memory becomes steady with; an evaluation goes on with its own. Where a run shows at the end that a plan
holds, a few come as the sampler draws them, and the first ones again: PyTorch's allocator meets the worst batch after others and before others.
In the runs before that one an evaluation ends there, if the small batch leaves as much the second time: nothing is gathered from batch to batch.

Each run of a script draws the same lists, whatever it drew before: the child's random numbers begin anew. How far it looks is bounded by
its processor time, and only where it waits by the clock: two runs on a machine that others use find the same batches.

A batch takes the place of one that the sampler drew, so there are as many as before. A loader whose samples have one size, a stream, and
a dataset that cannot be read in a child keep their order. On a phantom only: such an order is of no use for training.

The nursery lays out memory in which its children leave what they found: each loader is read once in a search. A run that is alone looks at
few samples first, and no further if these have one size.
"""

from __future__ import annotations

import dataclasses
import fcntl
import itertools
import json
import os
import random
import re
import struct
import sys
import types
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from plimsoll_agent import patch
from plimsoll_agent.inputs import aside
from plimsoll_agent.run.effort import Effort
from plimsoll_agent.run.guard import guarded
from plimsoll_agent.run.steady import LITTLE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from plimsoll_agent.kinds import Named, Torch
    from plimsoll_agent.run.recording import Recording

READ_SECONDS, DRAW_SECONDS, MEASURE_SECONDS = 2.5, 0.7, 2.0
"""For so long samples are read, index lists are drawn, and the sizes of their batches are summed up."""
LONGEST = 30.0
"""After so many seconds a child has found nothing."""
ENOUGH_OF_ONE_SIZE = 512
"""So many samples of one size, taken from all of the data, show that sizes do not differ."""
FEW, FEW_SECONDS = 64, 0.5
"""The same where there is one run; they are read for so long at most."""
MOST_DRAWN = 4_000
MOST_WORST, MOST_TRIED = 2, 6
"""So many batches come first, of so many that are put together."""
MORE = 1.05
"""The second one has a part that is larger by so much than that of the first."""
AS_DRAWN = 4
"""Batches as the sampler draws them in a run that shows that a plan holds."""
_DEEPEST, _MOST_PARTS = 4, 256
_HEAD = struct.Struct("<I")

_shared: int | None = None


def share() -> None:
    """What is found from now on is seen by every process that is forked from this one."""
    global _shared
    _shared = os.memfd_create("plimsoll-worst-batches")


def apply(torch: Torch, recording: Recording, stop: str, steps: Callable[[], int], backwards: Callable[[], int]) -> None:
    """Takes its place in PyTorch's loader; `steps()` and `backwards()`: training steps and backward passes so far; `stop`: where the run ends."""
    from torch.utils.data.dataloader import _BaseDataLoaderIter

    worst = WorstBatches(torch, recording, stop == "validation", steps, backwards)
    ends_evaluations = stop not in ("validation", "until-exit")
    original, take = _BaseDataLoaderIter._next_index, _BaseDataLoaderIter.__next__
    begin, reset = _BaseDataLoaderIter.__init__, _BaseDataLoaderIter._reset

    def __init__(self: Any, loader: Any, *args: Any, **kwargs: Any) -> None:
        worst.begins(self, loader)  # Before it: its workers begin with it, and ask for the first batches.
        begin(self, loader, *args, **kwargs)

    def _reset(self: Any, loader: Any, *args: Any, **kwargs: Any) -> Any:
        worst.begins(self, loader)
        return reset(self, loader, *args, **kwargs)

    def _next_index(self: Any) -> Any:
        drawn = original(self)  # At the end of the data it says so.
        return worst.instead(self, drawn)

    def __next__(self: Any) -> Any:
        if ends_evaluations and worst.has_shown_enough(self):
            raise StopIteration
        return take(self)

    patch.put(_BaseDataLoaderIter, "__init__", __init__)
    patch.put(_BaseDataLoaderIter, "__next__", __next__)
    patch.put(_BaseDataLoaderIter, "_reset", _reset)
    patch.put(_BaseDataLoaderIter, "_next_index", _next_index)


class WorstBatches:
    """See the top of this file."""

    def __init__(self, torch: Torch, recording: Recording, proves: bool, steps: Callable[[], int], backwards: Callable[[], int]) -> None:
        self._torch, self._recording, self._proves, self._steps, self._backwards = torch, recording, proves, steps, backwards
        self._found: dict[str, Any] = {}
        self._said: set[str] = set()

    @guarded
    def begins(self, iterator: Any, loader: Any) -> None:
        """A loader begins an epoch."""
        iterator._plimsoll_batches = iterator._plimsoll_evaluation = None
        if self._torch.utils.data.get_worker_info() is not None:
            return
        name = _name(loader)
        if name is None:
            return
        if name not in self._found:
            self._found[name] = _found_once(name, lambda: aside.ask(self._torch, lambda tell: tell(found(self._torch, loader)), LONGEST))
        order = self._found[name]
        if order and self._steps():
            iterator._plimsoll_evaluation = Evaluation(1 + len(order["worst"]), self._backwards())
        if order:
            iterator._plimsoll_batches = self._batches(order)
            if name not in self._said:
                self._said.add(name)
                if len(self._said) == 1:  # An evaluation's are said in the recording.
                    self._recording.note("worst-batches", order["text"])
                self._recording.write("worst", how="order", tensors=[], text=order["text"])

    def _batches(self, order: Any) -> Iterator[Any]:
        """In this order; None stands for what the sampler drew."""
        worst, small, before = order["worst"], order["small"], self._steps()

        yield from (small, *worst, small)
        if self._proves:
            yield from (worst[0], *[None] * AS_DRAWN, small, *worst)
        while True:  # Workers ask for some before the first step.
            yield worst[0] if before < self._steps() else None

    @guarded
    def has_shown_enough(self, iterator: Any) -> bool:
        """Whether an evaluation takes its batches from it, and has had the first ones and gathers nothing on the device. What it gathers on the
        host is seen in the run at the end, which has all batches."""
        evaluation = getattr(iterator, "_plimsoll_evaluation", None)
        if evaluation is None or not self._torch.cuda.is_initialized():
            return False
        if evaluation.backwards != self._backwards():
            iterator._plimsoll_evaluation = None  # It feeds training.
            return False
        return evaluation.gathers_nothing(self._torch.cuda.memory_allocated())

    def instead(self, iterator: Any, drawn: Any) -> Any:
        """The indices of the next batch."""
        batches = getattr(iterator, "_plimsoll_batches", None)
        wanted = next(batches, None) if batches is not None else None
        return drawn if wanted is None else wanted


class Evaluation:
    """What lives on the device before each batch of a loader, as long as no backward pass follows one."""

    def __init__(self, n_first: int, backwards: int) -> None:
        """The small batch comes again after so many."""
        self._n_first, self.backwards = n_first, backwards
        self._lived: list[int] = []

    def gathers_nothing(self, lives: int) -> bool:
        """Takes in what lives before one more batch. Whether it is what lived after the small one before, which has just come again."""
        self._lived.append(lives)
        return len(self._lived) == self._n_first + 2 and lives <= self._lived[1] + LITTLE


def _name(loader: Any) -> str | None:
    """A loader with the same name has the same batches; None for one that is left alone."""
    dataset = loader.dataset
    if loader._dataset_kind != 0 or not hasattr(dataset, "__getitem__"):
        return None
    try:
        n = len(dataset)
    except Exception:
        return None
    sampler = loader.batch_sampler or loader.sampler
    rows = getattr(sampler, "batch_size", None)
    kinds = (type(it) for it in (dataset, sampler, getattr(sampler, "sampler", None)))
    return json.dumps([n, rows if isinstance(rows, int) else None] + ["%s.%s" % (it.__module__, it.__qualname__) for it in kinds])


# What is found once for all runs of a search.


def _found_once(name: str, find: Callable[[], Any]) -> Any:
    if _shared is None:
        return find()
    fcntl.lockf(_shared, fcntl.LOCK_EX)  # Of two runs that begin together one waits for the other.
    try:
        known = _read()
        if name not in known:
            known[name] = find()
            _write(known)
        return known[name]
    finally:
        fcntl.lockf(_shared, fcntl.LOCK_UN)


def _read() -> dict[str, Any]:
    assert _shared is not None
    head = os.pread(_shared, _HEAD.size, 0)
    if len(head) < _HEAD.size:
        return {}
    known: dict[str, Any] = json.loads(os.pread(_shared, _HEAD.unpack(head)[0], _HEAD.size))
    return known


def _write(known: dict[str, Any]) -> None:
    assert _shared is not None
    text = json.dumps(known).encode()
    os.pwrite(_shared, _HEAD.pack(len(text)) + text, 0)


# In a child, where nothing of the script notices (`aside`).


def found(torch: Torch, loader: Any) -> dict[str, Any] | None:
    """{"worst": lists of indices, "small": one, "text"}; None where sizes do not differ."""
    _draw_as_always(torch)
    if _shared is None and not _differ(torch, loader.dataset):
        return None
    drawn = _drawn(loader)
    sizes = _sizes(torch, loader.dataset, drawn)
    if not sizes:
        return None
    drawn = _whole([it for it in drawn if all(i in sizes for i in _listed(it))])
    if not drawn:
        return None
    measured, looked = [], Effort()
    for it in drawn:
        measured.append((it, _measures([sizes[i] for i in _listed(it)])))
        if MEASURE_SECONDS < looked.seconds():
            break
    small = min(measured, key=lambda it: it[1][""])
    # The padded size of all its parts and the sum of them come first; then that of each part, as boxes and nodes are.
    kinds = sorted({kind for _, all_of_it in measured for kind in all_of_it}, key=lambda kind: (len(kind.split("/")) > 1, kind))
    tried: list[Any] = []
    for kind in kinds:
        most = max(measured, key=lambda it: (it[1].get(kind, 0), it[1][""], it[1]["sum"]))
        if small[1].get(kind, 0) < most[1].get(kind, 0) and most[0] not in tried:
            tried.append(most[0])
    if not tried:
        return None
    worst = _worst(torch, loader, tried[:MOST_TRIED], small[0])
    if not worst:
        return None
    return {"worst": worst, "small": small[0], "text": _text(sizes, len(loader.dataset), len(measured))}


def _draw_as_always(torch: Torch) -> None:
    torch.default_generator.manual_seed(0)
    random.seed(0)
    numpy = sys.modules.get("numpy.random")
    if numpy is not None:
        numpy.seed(0)


def _worst(torch: Torch, loader: Any, tried: list[Any], small: Any) -> list[Any]:
    """Those that the loader makes the largest batches of: the one with most numbers first, and one with a part that is larger. None where the
    small one is as large: what differs is no tensor, as names of files are."""
    made = [(it, _made(torch, loader, it)) for it in tried]
    made.sort(key=lambda it: -sum(it[1].values()))
    (worst, parts), others = made[0], made[1:]
    if _made(torch, loader, small) == parts:
        return []
    more = [it for it, of in others if any(MORE * parts.get(part, 0) < n for part, n in of.items())]
    return [worst, *more][:MOST_WORST]


def _made(torch: Torch, loader: Any, indices: Any) -> dict[str, int]:
    """{part: how many numbers it has} of the batch that the loader makes of these; of texts where it makes no tensor of them."""
    samples = [loader.dataset[i] for i in _listed(indices)]
    batch = loader.collate_fn(samples if isinstance(indices, (list, tuple)) else samples[0])
    for has_texts in (False, True):
        parts: dict[str, int] = {}
        for path, shape in _shapes(torch, batch, "", _DEEPEST, has_texts):
            part = re.sub(r"/\d+", "/*", path)
            parts[part] = parts.get(part, 0) + _product(shape)
        if parts:
            break
    return parts


def _sizes(torch: Torch, dataset: Any, drawn: list[Any]) -> dict[int, Any] | None:
    """{index: the shapes of a sample's parts}: of some from all of the data, and, if they differ, of the batches that were drawn, as many as
    there is time for; None if they are the same."""
    looked = Effort()
    sizes: dict[int, Any] = {}

    def read(indices: Iterable[int]) -> None:
        for i in indices:
            if i not in sizes:
                sizes[i] = dict(_shapes(torch, dataset[i], "", _DEEPEST))
            if READ_SECONDS < looked.seconds():
                break

    read(itertools.islice(aside.spread(len(dataset)), ENOUGH_OF_ONE_SIZE))
    first = next(iter(sizes.values()), None)
    if all(it == first for it in sizes.values()):
        return None
    read(i for it in drawn for i in _listed(it))
    return sizes


def _differ(torch: Torch, dataset: Any) -> bool:
    """Whether a few of its samples do."""
    looked, sizes = Effort(), []
    for i in itertools.islice(aside.spread(len(dataset)), FEW):
        sizes.append(dict(_shapes(torch, dataset[i], "", _DEEPEST)))
        if sizes[-1] != sizes[0] or FEW_SECONDS < looked.seconds():
            break
    return sizes[-1:] != sizes[:1]


def _shapes(torch: Torch, it: Any, path: str, depth: int, has_texts: bool = True) -> Iterator[tuple[str, Any]]:
    shape: Any = getattr(it, "shape", None)
    if shape is not None and (isinstance(it, torch.Tensor) or hasattr(it, "dtype")):
        yield path, tuple(int(n) for n in shape)
    elif isinstance(it, (str, bytes)):
        if has_texts:
            yield path, (len(it),)
    elif isinstance(it, Mapping) and depth:
        for key in list(it)[:_MOST_PARTS]:
            yield from _shapes(torch, it[key], "%s/%s" % (path, key), depth - 1, has_texts)
    elif isinstance(it, (list, tuple)) and depth:
        if it and isinstance(it[0], (int, float)) and len(it) > 2:
            yield path, (len(it),)
        elif it and isinstance(it[0], str):
            if has_texts:
                yield path, (sum(map(len, it)),)
        else:
            for i, part in enumerate(it[:_MOST_PARTS]):
                yield from _shapes(torch, part, "%s/%d" % (path, i), depth - 1, has_texts)
    elif isinstance(getattr(it, "size", None), tuple):
        yield path, tuple(it.size)  # A picture.
    elif hasattr(it, "to_dict") and depth:
        yield from _shapes(torch, it.to_dict(), path, depth - 1, has_texts)  # A graph.
    elif depth:
        yield from _shapes(torch, _parts(it), path, depth - 1, has_texts)


def _parts(it: Any) -> Named:
    """What an object of a class of the script's has, by its names."""
    if callable(it) or isinstance(it, types.ModuleType):
        return {}
    if dataclasses.is_dataclass(it):
        return {field.name: getattr(it, field.name, None) for field in dataclasses.fields(it)}
    return getattr(it, "__dict__", {})


def _drawn(loader: Any) -> list[Any]:
    """Lists of indices as the loader's own sampler draws them, epoch after epoch."""
    sampler = loader.batch_sampler if loader.batch_sampler is not None else loader.sampler
    looked = Effort()
    drawn: list[Any] = []
    while len(drawn) < MOST_DRAWN and looked.seconds() <= DRAW_SECONDS:
        before = len(drawn)
        for it in sampler:
            drawn.append(list(it) if isinstance(it, (list, tuple)) else it)
            if MOST_DRAWN <= len(drawn) or DRAW_SECONDS < looked.seconds():
                break
        if len(drawn) == before:
            break
    return drawn


def _whole(drawn: list[Any]) -> list[Any]:
    """Without the last ones of epochs, which have fewer samples."""
    most = max((len(_listed(it)) for it in drawn), default=0)
    return [it for it in drawn if 2 * len(_listed(it)) >= most]


def _listed(it: Any) -> Any:
    return it if isinstance(it, (list, tuple)) else [it]


def _measures(samples: list[Any]) -> dict[str, int]:
    """What a batch of these may take: padded to the largest and summed, all in all (`""`, `"sum"`) and of each part."""
    padded: dict[str, list[int]] = {}
    measures: dict[str, int] = {}
    for sample in samples:
        for path, shape in sample.items():
            most = padded.setdefault(path, [0] * len(shape))
            for d, n in enumerate(shape[: len(most)]):
                most[d] = max(most[d], n)
            of = "/sum" + path
            measures[of] = measures.get(of, 0) + _product(shape)
    for path, most in padded.items():
        measures["/padded" + path] = len(samples) * _product(most)
    measures["sum"] = sum(n for of, n in measures.items() if of.startswith("/sum"))
    measures[""] = sum(n for of, n in measures.items() if of.startswith("/padded"))
    return measures


def _product(shape: Any) -> int:
    product = 1
    for n in shape:
        product *= n
    return product


def _text(sizes: dict[int, Any], n: int, n_drawn: int) -> str:
    """For the reader: which part differs, from what to what."""
    by_path: dict[str, set[Any]] = {}
    for sample in sizes.values():
        for path, shape in sample.items():
            by_path.setdefault(path, set()).add(shape)
    path, shapes = max(by_path.items(), key=lambda it: (len(it[1]), max(map(_product, it[1]))))
    least, most = min(shapes, key=_product), max(shapes, key=_product)
    what = path.strip("/") or "samples"
    of = "%d samples" % n if len(sizes) == n else "%d of %d samples" % (len(sizes), n)
    if what.isdigit():
        what = "part %d:" % (int(what) + 1)
    elif "/" in what:  # As a script would reach it.
        what = "sample" + "".join("[%s]" % (it if it.isdigit() else repr(it)) for it in what.split("/"))
    return "batches differ in size (%s %s to %s, in %s): plimsoll runs the worst of %d drawn batches first" % (
        what,
        "x".join(map(str, least)),
        "x".join(map(str, most)),
        of,
        n_drawn,
    )
