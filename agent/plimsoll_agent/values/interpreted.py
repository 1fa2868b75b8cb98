"""Triton's kernels over small tensors of integers are interpreted: a serving engine counts with them which requests are done, and a loop that
waits for that would never end, or end too early, if nobody computed it.

Triton's own interpreter runs the kernel's Python on the host, once for each block. What it loads is what the phantom knows; where that is
nothing, two runs get two different numbers, and what both store alike does not depend on it. What they store otherwise is unknown.

A kernel is interpreted if all of its tensors are integers or booleans, and its blocks are few; and no more once all of them together have
taken `SECONDS`. What the interpreter cannot do (code in assembly, atomics) is left as if the kernel had done nothing.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import sys
import time
from typing import TYPE_CHECKING, Any

from plimsoll_agent import patch
from plimsoll_agent.run.after_import import after_import
from plimsoll_agent.run.guard import guarded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from plimsoll_agent.kinds import Function, Torch

MOST_BLOCKS = 1100
"""Of a launch: engines have a block for each request, and up to 1024 of these."""
SECONDS, SECONDS_EACH = 60.0, 5.0
"""Of the processor, for all launches together, and for one. A block takes a millisecond."""
FILLS = (0, 1)
"""What unknown numbers read as; small, because loops count by them: in the first run, and in the second, if there are any."""


def _is_too_much(error: BaseException | None) -> bool:
    """The interpreter raises its own from it, at each function that the kernel calls."""
    return error is not None and (isinstance(error, _TooMuch) or _is_too_much(error.__cause__))


_paused = 0
"""How many callers have paused it."""


@contextlib.contextmanager
def paused() -> Iterator[None]:
    """Nothing is interpreted meanwhile: where an engine measures and warms up, with as many requests as it may ever have, nobody needs the numbers."""
    global _paused
    _paused += 1
    try:
        yield
    finally:
        _paused -= 1


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


class _TooMuch(Exception):
    """This launch has too many blocks, or takes too long; another may not."""


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
        if _paused or self._known is None or self._busy or function in self._unable or SECONDS <= self._spent:
            return
        if not self._are_integers([*args, *kwargs.values()]) or self._torch.cuda.is_current_stream_capturing():
            return
        start = time.thread_time()
        self._busy = True
        try:
            first = second = _interpret(function, grid, args, kwargs, _Memory(self._known, FILLS[0]))
            if first.met_unknown:
                second = _interpret(function, grid, args, kwargs, _Memory(self._known, FILLS[1]))
        except Exception as error:
            # Whatever it was: nothing was computed, as for all kernels that nobody knows.
            if not _is_too_much(error):
                self._unable.add(function)
            return
        finally:
            self._busy = False
            self._spent += time.thread_time() - start
        self._take(first, second)

    def _take(self, first: _Memory, second: _Memory) -> None:
        """What both runs stored alike is known, what one stored otherwise is not. Numbers that lie side by side are written together."""
        one, other = first.stored, second.stored
        start, run, is_known = 0, bytearray(), True
        for address in sorted(one.keys() | other.keys()):
            value = one.get(address, b"")
            known = other.get(address) == value
            if run and (address != start + len(run) or known != is_known):
                self._write(start, run, is_known)
                run = bytearray()
            if not run:
                start, is_known = address, known
            run += value or other[address]
        if run:
            self._write(start, run, is_known)

    def _write(self, address: int, values: bytearray, is_known: bool) -> None:
        self._computed(address, len(values), bytes(values) if is_known else None)

    def _are_integers(self, values: list[Any]) -> bool:
        tensors = [it for it in values if isinstance(it, self._torch.Tensor)]
        others = [it for it in values if hasattr(it, "data_ptr") and not isinstance(it, self._torch.Tensor)]
        return bool(tensors) and not others and all(it.is_cuda and not (it.is_floating_point() or it.is_complex()) for it in tensors)


class _Memory:
    """What a kernel loads and stores, by address of the device; stands for the interpreter's access to the host's memory."""

    def __init__(self, known: Function, fill: int) -> None:
        self._known, self._fill = known, fill
        self.met_unknown = False
        self._end, self._loads = time.thread_time() + SECONDS_EACH, 0
        self.stored: dict[int, bytes] = {}
        """The last value of each address that was stored to, which is one element's."""

    def load(self, pointers: Any, mask: Any, other: Any, dtype: Any) -> Any:
        import numpy as np

        self._loads += 1
        if self._loads % 64 == 0 and self._end < time.thread_time():
            raise _TooMuch
        dtype = np.dtype(dtype)
        result = np.array(np.broadcast_to(other, pointers.shape), dtype=dtype)
        flat, wanted = result.reshape(-1), np.broadcast_to(mask, pointers.shape).reshape(-1)
        if result.size == 1:
            if wanted[0]:
                flat[0] = np.frombuffer(self._number(int(pointers.reshape(-1)[0]), dtype), dtype)[0]
        elif wanted.any():
            places, inverse = np.unique(pointers.reshape(-1)[wanted].astype(np.uint64), return_inverse=True)
            flat[wanted] = self._values(places, dtype)[inverse]
        return result

    def _values(self, at: Any, dtype: Any) -> Any:
        import numpy as np

        low, size = int(at[0]), int(at[-1] - at[0]) + dtype.itemsize
        whole = self._bytes(low, size) if size <= 1 << 20 else None
        if whole is None or (size - dtype.itemsize) % dtype.itemsize:
            return np.frombuffer(b"".join(self._number(it, dtype) for it in at.tolist()), dtype)
        values = np.array(np.frombuffer(whole, dtype)[(at - np.uint64(low)) // np.uint64(dtype.itemsize)])
        if self.stored:
            for i, place in enumerate(at.tolist()):
                stored = self.stored.get(place)
                if stored is not None and len(stored) == dtype.itemsize:
                    values[i] = np.frombuffer(stored, dtype)[0]
        return values

    def _number(self, address: int, dtype: Any) -> bytes:
        """What lies there."""
        import numpy as np

        found = self.stored.get(address)
        if found is None or len(found) != dtype.itemsize:
            found = self._bytes(address, dtype.itemsize)
        if found is None:
            self.met_unknown = True
            found = np.array(self._fill, dtype).tobytes()
        return found

    def store(self, pointers: Any, value: Any, mask: Any) -> None:
        import numpy as np

        wanted = np.broadcast_to(mask, pointers.shape).reshape(-1)
        at = pointers.reshape(-1)[wanted].tolist()
        values = np.broadcast_to(value, pointers.shape).reshape(-1)[wanted]
        raw, width = values.tobytes(), values.dtype.itemsize
        for i, place in enumerate(at):
            self.stored[place] = raw[i * width : (i + 1) * width]

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
            raise _TooMuch
    language = _Language()
    # A kernel calls other functions of Triton as if they were Python's.
    instead = (
        patch.put(jit.JITFunction, "__call__", lambda self, *args, **kwargs: interpreter.InterpretedFunction(self.fn)(*args, **kwargs)),
        patch.put(interpreter, "_interpreter", memory),
        patch.put(interpreter, "_patch_lang_tensor", functools.partial(_tensors, interpreter._patch_lang_tensor)),
    )
    try:
        Executor(interpreted.rewrite(), interpreted.arg_names, grid)(*args, **kwargs)
    finally:
        for it in instead:
            it.undo()
        language.restore()
    return memory


def _tensors(real: Function, tensor: Any, *scope: Any) -> None:
    """What counts a loop is an array of one number, which NumPy 2.4 makes no integer of."""
    real(tensor, *scope)
    tensor.__index__ = lambda it: int(it.handle.data.item())


class _Language:
    """`triton.language` as it is before a kernel is interpreted. The interpreter changes it, and leaves there what it changed for a
    function that the kernel calls (or all, before Triton 3.6): Triton would compile no kernel any more."""

    def __init__(self) -> None:
        modules = [module for name, module in list(sys.modules.items()) if name.partition(".")[0] == "triton" and name.split(".")[1:2] == ["language"]]
        classes = {it for module in modules for it in vars(module).values() if isinstance(it, type) and it.__module__.startswith("triton.language")}
        self._before = [(owner, dict(vars(owner))) for owner in (*modules, *classes)]

    def restore(self) -> None:
        for owner, before in self._before:
            for name, value in list(vars(owner).items()):
                if name in before and before[name] is not value:
                    setattr(owner, name, before[name])
                elif name not in before and isinstance(owner, type):
                    # In a module there are new names that the kernel's functions need the next time.
                    delattr(owner, name)
