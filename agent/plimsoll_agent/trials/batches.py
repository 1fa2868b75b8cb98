"""Batches that the workers of a `DataLoader` make once for all runs of a search.

Pictures are read and cut by the host, and where a search makes twenty runs of three steps, that is most of what it takes. The nursery
lays out memory that its children, and their workers, share. A worker writes into it what came of a list of indices; one of a
later run that has the same indices, the same random numbers and a dataset that looks the same takes it from there, and its random
numbers go on as if it had made the batch.

Large tensors of floats, and pictures of bytes, keep their sizes and their first numbers, again and again: programs do not steer by the rest. A
dataset that has a state of its own (a file that is read on, a generator, a count that changes) makes its batches each time, and so do
workers that are not forked, and runs that check or prove something (`PLIMSOLL_OWN_BATCHES`).
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import io
import itertools
import math
import mmap
import pickle
import random
import struct
import sys
import time
import types
import zlib
from typing import TYPE_CHECKING, Any

from plimsoll_agent import patch
from plimsoll_agent.run.guard import failed
from plimsoll_agent.run.host_random import HostRandom
from plimsoll_agent.values.ghosts import LARGE, repeat

if TYPE_CHECKING:
    from plimsoll_agent.kinds import Torch

SLOTS, SLOT = 512, 1 << 17
"""At most so many batches, and bytes of each."""
WORTH = 2e-3
"""Batches that take fewer seconds are not stored."""
FIRST = 1 << 10
"""So many numbers of a large tensor are stored."""
DEEPEST, MOST = 32, 4000
"""How far, and how many parts of, a dataset is looked at."""

_HEAD = struct.Struct("<II")
"""A checksum of what follows, so that half of an entry is none; and how long all is. The key comes next, of `_KEY` bytes."""
_KEY = 32

_shared: Any = None


def share() -> None:
    """What is made from now on is seen by every process that is forked from this one."""
    global _shared
    _shared = mmap.mmap(-1, SLOTS * SLOT)


def install(torch: Torch, makes_its_own: bool) -> None:
    """Workers of this process look there first; nothing without a nursery, or where each run makes its own."""
    if _shared is None or makes_its_own:
        return
    fetcher = torch.utils.data._utils.fetch._MapDatasetFetcher
    fetch = fetcher.fetch

    def wrapped(self: Any, indices: Any) -> Any:
        if torch.utils.data.get_worker_info() is None or getattr(self, "_plimsoll_makes_its_own", False):
            return fetch(self, indices)
        try:
            before = looks(torch, (self.dataset, self.collate_fn))
            key = _key(torch, before, indices)
            found = _found(torch, key)
        except Exception as error:
            self._plimsoll_makes_its_own = True
            if not isinstance(error, Unclear):
                failed("batches.fetch", error)
            return fetch(self, indices)
        if found is not None:
            return found[0]
        began = time.perf_counter()
        result = fetch(self, indices)
        try:
            if WORTH <= time.perf_counter() - began and looks(torch, (self.dataset, self.collate_fn)) == before:
                _keep(torch, key, result)
        except Exception as error:
            self._plimsoll_makes_its_own = True
            if not isinstance(error, (Unclear, pickle.PicklingError, AttributeError, TypeError)):
                failed("batches.keep", error)
        return result

    patch.put(fetcher, "fetch", wrapped)


# What is stored.


def _key(torch: Torch, before: Any, indices: Any) -> Any:
    digest = hashlib.blake2b(repr((before, indices)).encode(), digest_size=_KEY)
    digest.update(pickle.dumps(_Random(torch)))
    return digest.digest()


def _found(torch: Torch, key: Any) -> tuple[Any] | None:
    at = zlib.crc32(key) % SLOTS * SLOT
    check, size = _HEAD.unpack_from(_shared, at)
    if not size or SLOT < size:
        return None
    entry = _shared[at + _HEAD.size : at + size]
    if entry[:_KEY] != key or zlib.crc32(entry) != check:
        return None
    result, then = _Unpickler(torch, io.BytesIO(entry[_KEY:])).load()
    then.again(torch)
    return (result,)


def _keep(torch: Torch, key: Any, result: Any) -> None:
    file = io.BytesIO()
    _Pickler(torch, file).dump((result, _Random(torch)))
    entry = key + file.getvalue()
    size = _HEAD.size + len(entry)
    if size <= SLOT:
        at = zlib.crc32(key) % SLOTS * SLOT
        _shared[at : at + size] = _HEAD.pack(zlib.crc32(entry), size) + entry


class _Pickler(pickle.Pickler):
    def __init__(self, torch: Torch, file: io.BytesIO) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self._torch = torch

    def persistent_id(self, it: Any) -> tuple[Any, Any, Any] | None:
        torch = self._torch
        if not isinstance(it, torch.Tensor):
            return None
        if type(it) is not torch.Tensor or it.layout is not torch.strided or it.device.type != "cpu" or it.requires_grad or it.is_quantized:
            raise Unclear
        if not it.is_contiguous() or it.is_conj() or it.is_neg():
            raise Unclear
        flat = it.view(-1)
        are_pictures = it.is_floating_point() or it.dtype is torch.uint8 and it.dim() >= 4
        if are_pictures and LARGE <= it.numel() * it.element_size():
            flat = flat[:FIRST]
        elif SLOT < it.numel() * it.element_size():
            raise Unclear
        return it.dtype, tuple(it.shape), _bytes(flat)


class _Unpickler(pickle.Unpickler):
    def __init__(self, torch: Torch, file: io.BytesIO) -> None:
        super().__init__(file)
        self._torch = torch

    def persistent_load(self, kept: Any) -> Any:
        torch = self._torch
        dtype, shape, first = kept
        n = math.prod(shape)
        if not n:
            return torch.empty(shape, dtype=dtype)
        made = torch.frombuffer(bytearray(first), dtype=dtype)
        if made.numel() < n:
            # Where a worker's tensors go: it copies no others.
            storage = torch.UntypedStorage._new_shared(n * dtype.itemsize)
            whole = torch.empty(0, dtype=dtype).set_(storage, 0, (n,), (1,))
            repeat(whole, made)
            made = whole
        return made.view(shape)


# By what a batch is told from others.


class Unclear(Exception):
    """It has a state that cannot be seen, or it cannot be stored."""


def looks(torch: Torch, it: Any) -> Any:
    """What a dataset looks like, as plain values: two that look the same make the same batch of the same indices. Raises `Unclear`."""
    return _Looking(torch).at(it, 0)


class _Looking:
    def __init__(self, torch: Torch) -> None:
        self._torch = torch
        self._seen: dict[int, Any] = {}
        self._left = MOST

    def at(self, it: Any, depth: int) -> Any:
        self._left -= 1
        if self._left < 0 or DEEPEST < depth:
            raise Unclear
        if it is None or isinstance(it, (bool, int, float, complex, str)):
            return it
        if isinstance(it, (bytes, bytearray)):
            return len(it), zlib.crc32(it[:256])
        if id(it) in self._seen:
            return ("again", self._seen[id(it)][0])
        self._seen[id(it)] = len(self._seen), it  # Stored, or another object could get the same address.
        kind = type(it)
        name = (kind.__module__, kind.__qualname__)
        if isinstance(it, self._torch.Tensor):
            return name, str(it.dtype), tuple(it.shape), it._version
        if kind.__module__ == "numpy" and hasattr(it, "dtype") and hasattr(it, "tobytes"):
            return name, str(it.dtype), tuple(it.shape), zlib.crc32(it.tobytes()) if it.nbytes <= 256 else 0
        if self._has_a_state(it):
            raise Unclear
        if isinstance(it, (types.FunctionType, type, types.BuiltinFunctionType)):
            return getattr(it, "__module__", None), it.__qualname__, self._closure(it, depth)
        if isinstance(it, types.ModuleType):
            return it.__name__
        if isinstance(it, types.MethodType):
            return self.at(it.__func__, depth + 1), self.at(it.__self__, depth + 1)
        if isinstance(it, functools.partial):
            return name, [self.at(part, depth + 1) for part in (it.func, it.args, it.keywords)]
        if isinstance(it, dict):
            items = itertools.islice(it.items(), 32)
            return name, len(it), [(self.at(key, depth + 1), self.at(value, depth + 1)) for key, value in items]
        if isinstance(it, (list, tuple, set, frozenset)):
            few = [] if isinstance(it, (set, frozenset)) else itertools.islice(it, 32)
            return name, len(it), [self.at(part, depth + 1) for part in few]
        parts = getattr(it, "__dict__", None)
        return name, self.at(parts, depth + 1) if parts else None

    def _has_a_state(self, it: Any) -> bool:
        """It is read on, or draws numbers of its own."""
        if isinstance(it, (io.IOBase, random.Random, self._torch.Generator)) or hasattr(type(it), "__next__"):
            return True
        numpy = sys.modules.get("numpy.random")
        return numpy is not None and isinstance(it, (numpy.Generator, numpy.RandomState, numpy.BitGenerator))

    def _closure(self, it: Any, depth: int) -> list[Any]:
        cells = getattr(it, "__closure__", None) or ()
        return [self.at(cell.cell_contents, depth + 1) for cell in cells]


def _bytes(flat: Any) -> Any:
    """Those of a tensor in one piece; numpy may not be there."""
    return ctypes.string_at(flat.data_ptr(), flat.numel() * flat.element_size()) if flat.numel() else b""


class _Random:
    """Where a worker's random numbers are: PyTorch's, Python's and NumPy's."""

    def __init__(self, torch: Torch) -> None:
        self._torch, self._others = _bytes(torch.get_rng_state()), HostRandom()

    def again(self, torch: Torch) -> None:
        torch.set_rng_state(torch.frombuffer(bytearray(self._torch), dtype=torch.uint8))
        self._others.again()
