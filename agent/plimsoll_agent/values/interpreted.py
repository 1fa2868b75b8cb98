"""Triton's kernels over small tensors of integers are interpreted: a serving engine counts with them which requests are done, and a loop that
waits for that would never end, or end too early, if nobody computed it.

Triton's own interpreter runs the kernel's Python on the host, once for each block. What it loads is what the phantom knows; where that is
nothing, two runs get two different numbers, and what both store alike does not depend on it. What they store otherwise is unknown.

A kernel is interpreted if all of its tensors are integers or booleans, and its blocks are few; and no more once all of them together have
taken `SECONDS`. What the interpreter cannot do (code in assembly, atomics) is left as if the kernel had done nothing.
"""

from __future__ import annotations

import ctypes
import time
from typing import TYPE_CHECKING, Any

from plimsoll_agent import patch
from plimsoll_agent.run.after_import import after_import
from plimsoll_agent.run.guard import guarded

if TYPE_CHECKING:
    from plimsoll_agent.kinds import Function, Torch

MOST_BLOCKS = 1100
"""Of a launch: engines have a block for each request, and up to 1024 of these."""
SECONDS, SECONDS_EACH = 20.0, 2.0
"""Of all launches together, and of one."""
FILLS = (0, 1)
"""What unknown numbers read as; small, because loops count by them: in the first run, and in the second, if there are any."""


def install(torch: Torch) -> None:
    """Takes its place in Triton once that is imported."""
    after_import("triton.runtime.jit", lambda module: patch.replace(module.JITFunction, "run", lambda real: _run(Interpreted(torch), real)))


def _run(interpreted: Interpreted, real: Function) -> Function:
    def run(self: Any, *args: Any, grid: Any, warmup: Any, **kwargs: Any) -> Any:
        result = real(self, *args, grid=grid, warmup=warmup, **kwargs)
        if not warmup:
            interpreted.launched(self, grid, args, kwargs)
        return result

    return run


class _Unable(Exception):
    """The kernel does something that is not interpreted."""


class Interpreted:
    """What is interpreted in this process."""

    def __init__(self, torch: Torch) -> None:
        self._torch = torch
        self._spent = 0.0
        self._unable: set[Any] = set()
        self._busy = False
        library = ctypes.CDLL(None)
        self._known: Any = getattr(library, "plimsoll_phantom_known", None)
        self._computed: Any = getattr(library, "plimsoll_phantom_computed", None)
        if self._known is not None and self._computed is not None:
            self._known.argtypes, self._known.restype = [ctypes.c_uint64, ctypes.c_size_t, ctypes.c_void_p], ctypes.c_int
            self._computed.argtypes, self._computed.restype = [ctypes.c_uint64, ctypes.c_size_t, ctypes.c_void_p], None

    @guarded
    def launched(self, kernel: Any, grid: Any, args: Any, kwargs: Any) -> None:
        """The program launched `kernel`, which did nothing."""
        function = getattr(kernel, "fn", None)
        if self._known is None or self._busy or function in self._unable or SECONDS <= self._spent:
            return
        if not self._are_integers([*args, *kwargs.values()]) or self._torch.cuda.is_current_stream_capturing():
            return
        start = time.monotonic()
        self._busy = True
        try:
            first = second = _interpret(function, grid, args, kwargs, _Memory(self._known, FILLS[0]))
            if first.met_unknown:
                second = _interpret(function, grid, args, kwargs, _Memory(self._known, FILLS[1]))
        except Exception:
            # Whatever it was: nothing was computed, as for all kernels that nobody knows.
            self._unable.add(function)
            return
        finally:
            self._busy = False
            self._spent += time.monotonic() - start
        self._take(first, second)

    def _take(self, first: _Memory, second: _Memory) -> None:
        """What both runs stored alike is known, what one stored otherwise is not."""
        one, other = first.written(), second.written()
        for address, value in one.items():
            # Bytes that lie side by side are written together.
            self._computed(address, len(value), value if other.get(address) == value else None)
        for address in other.keys() - one.keys():
            self._computed(address, len(other[address]), None)

    def _are_integers(self, values: list[Any]) -> bool:
        tensors = [it for it in values if isinstance(it, self._torch.Tensor)]
        others = [it for it in values if hasattr(it, "data_ptr") and not isinstance(it, self._torch.Tensor)]
        return bool(tensors) and not others and all(it.is_cuda and not (it.is_floating_point() or it.is_complex()) for it in tensors)


class _Memory:
    """What a kernel loads and stores, by address of the device; stands for the interpreter's access to the host's memory."""

    def __init__(self, known: Function, fill: int) -> None:
        self._known, self._fill = known, fill
        self.met_unknown = False
        self._end = time.monotonic() + SECONDS_EACH
        self._stores: list[tuple[Any, Any]] = []
        """Addresses and values, in order."""

    def load(self, pointers: Any, mask: Any, other: Any, dtype: Any) -> Any:
        import numpy as np

        if self._end < time.monotonic():
            raise _Unable("seconds")
        dtype = np.dtype(dtype)
        result = np.array(np.broadcast_to(other, pointers.shape), dtype=dtype)
        wanted = np.broadcast_to(mask, pointers.shape).reshape(-1)
        at, flat = pointers.reshape(-1)[wanted].astype(np.uint64), result.reshape(-1)
        if len(at):
            places, inverse = np.unique(at, return_inverse=True)
            flat[wanted] = self._values(places, dtype)[inverse]
        return result

    def _values(self, at: Any, dtype: Any) -> Any:
        import numpy as np

        low, size = int(at.min()), int(at.max() - at.min()) + dtype.itemsize
        whole = self._bytes(low, size) if size <= 1 << 20 else None
        if whole is not None and (size - dtype.itemsize) % dtype.itemsize == 0:
            values = np.frombuffer(whole, dtype)[(at - np.uint64(low)) // np.uint64(dtype.itemsize)]
        else:
            filled = np.array(self._fill, dtype).tobytes()
            known = [self._bytes(int(it), dtype.itemsize) for it in at]
            self.met_unknown |= None in known
            values = np.frombuffer(b"".join(filled if it is None else it for it in known), dtype)
        values = np.array(values)
        for places, stored in self._stores:
            if places.min() <= at.max() and at.min() <= places.max():
                _, here, there = np.intersect1d(at, places, return_indices=True)
                values[here] = stored[there].astype(dtype)
        return values

    def store(self, pointers: Any, value: Any, mask: Any) -> None:
        import numpy as np

        wanted = np.broadcast_to(mask, pointers.shape).reshape(-1)
        at = pointers.reshape(-1)[wanted].astype(np.uint64)
        if len(at):
            self._stores.append((at, np.broadcast_to(value, pointers.shape).reshape(-1)[wanted]))

    def written(self) -> dict[int, bytes]:
        """All that was stored, by address: each store whole where it is of neighbours, else element by element."""
        import numpy as np

        res: dict[int, bytes] = {}
        for at, values in self._stores:
            width = values.dtype.itemsize
            if len(at) > 1 and np.array_equal(at, at[0] + np.arange(len(at), dtype=np.uint64) * np.uint64(width)):
                res[int(at[0])] = values.tobytes()
            else:
                res.update((int(place), value.tobytes()) for place, value in zip(at, values))
        return res

    def _bytes(self, address: int, size: int) -> bytes | None:
        out = ctypes.create_string_buffer(size)
        return out.raw if self._known(address, size, out) else None

    def __getattr__(self, name: str) -> Any:
        raise _Unable(name)  # Atomics.


def _interpret(function: Any, grid: Any, args: Any, kwargs: Any, memory: _Memory) -> _Memory:
    """`memory` with what `function` stores, if it is launched so."""
    from triton.runtime import interpreter, jit

    class Executor(interpreter.GridExecutor):
        """Pointers stay those of the device."""

        def _init_args_hst(self, args: Any, kwargs: Any) -> Any:
            return list(args), dict(kwargs)

        def _restore_args_dev(self, *_: Any) -> None:
            pass

    interpreted = interpreter.InterpretedFunction(function)
    # Blocks that are known to be too many are not begun.
    if not callable(grid):
        n_blocks = 1
        for it in grid:
            n_blocks *= int(it)
        if MOST_BLOCKS < n_blocks:
            raise _Unable("blocks")
    # A kernel calls other functions of Triton as if they were Python's.
    instead = (
        patch.put(jit.JITFunction, "__call__", lambda self, *args, **kwargs: interpreter.InterpretedFunction(self.fn)(*args, **kwargs)),
        patch.put(interpreter, "_interpreter", memory),
    )
    try:
        Executor(interpreted.rewrite(), interpreted.arg_names, grid)(*args, **kwargs)
    finally:
        for it in instead:
            it.undo()
    return memory
