"""Data that only the phantom GPU has, read through its own functions.

On anything else (a real GPU) the functions are missing and this module does nothing.

The allocator's GPU trace (`torch._C._activate_gpu_trace`) could tell the phantom about each block.
It must not be used: it runs Python on every free, also while an exception is on its way out of C++,
and that exception is lost. See `memory` for the same fault in another place.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
import os
import struct
import sys
from typing import TYPE_CHECKING, Any

from plimsoll_agent import settings
from plimsoll_agent.run import frames
from plimsoll_agent.run.guard import guarded
from plimsoll_agent.values import checks
from plimsoll_agent.values.lines import AS_BEFORE, SAID, Lines
from plimsoll_agent.values.sizes import becomes_size
from plimsoll_agent.values.turns import Turns

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from plimsoll_agent.kinds import Tensor, Torch
    from plimsoll_agent.run.recording import Recording

MOST_READS = 50
MOST_SAMPLES = 50_000
"""Reads looked at one by one; the phantom's report counts them all."""

_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int)


def is_here() -> bool:
    """Whether this process runs on the phantom."""
    return _library() is not None


class Phantom:
    """The phantom in this process, if there is one."""

    def __init__(self, torch: Torch, recording: Recording) -> None:
        self._torch = torch
        self._recording = recording
        self._library = _library()
        self._reads: dict[Any, Any] = {}
        self._samples = self._checks = 0
        self._lines: Any = None
        self._as_before: dict[Any, Any] = {}
        self._has_trained = False
        self._turns = Turns()
        self._callback = _CALLBACK(self._read)  # Stored here, because C holds only the pointer.

    def watch_reads(self) -> None:
        """From now on, reads of unknown device values are counted by line, or get an answer."""
        register = _function(self._library, "plimsoll_phantom_on_read")
        if register is not None:
            self._lines = Lines(self._torch, _said_reads())
            register.argtypes, register.restype = [_CALLBACK], None
            register(self._callback)
            # Deterministic algorithms fill each new tensor with the largest number, which would be taken for its result.
            leave = getattr(self._torch._C, "_set_deterministic_fill_uninitialized_memory", None)
            if leave is not None:
                leave(False)

    def step(self, steps: int = 1) -> None:
        """The program has finished that many training steps."""
        self._turns.step()
        if self._tell(steps):
            self._has_trained = True

    def finish(self) -> None:
        """Nothing waits for a step any more."""
        self._tell(1 << 40)

    def _tell(self, steps: int) -> bool:
        told = _function(self._library, "plimsoll_phantom_steps")
        if told is None:
            return False
        told.argtypes, told.restype = [ctypes.c_uint64], None
        told(steps)
        return True

    def forget_reads(self) -> None:
        """In a forked child."""
        self._reads.clear()
        self._as_before.clear()
        self._samples = 0

    def stop_watching(self) -> None:
        """Before Python goes away, C must not call it any more."""
        register = _function(self._library, "plimsoll_phantom_on_read")
        if register is not None:
            register.argtypes, register.restype = [ctypes.c_void_p], None
            register(None)

    def _read(self, at: Any, size: int, unknown: Any, is_answer: bool) -> Any:
        return self._look(at, size, unknown, is_answer) or 0

    @guarded
    def _look(self, at: Any, size: int, unknown: Any, is_answer: bool) -> Any:
        if self._samples > MOST_SAMPLES and not self._lines.matter:
            # A check that does not hold would end the program.
            return SAID if unknown and size == 1 and self._is_checked(_outside_ours(sys._getframe(1)), at) else 0
        first = frame = _outside_ours(sys._getframe(1))
        while frame is not None and not frames.is_users(frame.f_code.co_filename):
            frame = frame.f_back
        frame = frame or first
        if frame is None:
            key = ("?", 0, "?")
        else:
            key = (frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
        # A line of the user's that calls a library stands for many of the library's.
        place = (first and (first.f_code.co_filename, first.f_lineno), key)
        if not unknown:
            self._lines.learn(place, at)
            return 0
        answer = self._lines.answer(first, place, at, size, is_answer)
        if answer == SAID:
            return answer
        self._samples += 1
        if size == 1 and answer == 0 and self._is_checked(first, at):
            return SAID
        is_asked = answer == 0 and (size == 1 or not is_answer)
        if is_asked and frame is not None and frames.is_users(key[0]) and self._turns.answer(frame, at, size, self._torch.is_grad_enabled()):
            return SAID
        kept = self._as_before if answer == AS_BEFORE else self._reads
        count, total, sizes = kept.get(key, (0, 0, 0))
        kept[key] = (count + 1, total + unknown, sizes + (size == 8 and not is_answer))
        return answer

    def _is_checked(self, frame: FrameType | None, at: Any) -> bool:
        """Whether the line of `frame` checks the truth value at `at`, and it was changed to what lets the program go on."""
        wanted = checks.wanted(frame)
        if wanted is None or ctypes.string_at(at, 1) == bytes([wanted]):
            return False
        ctypes.memset(at, wanted, 1)
        self._checks += 1
        return True

    def write_reads(self) -> None:
        """One line for each place, the most frequent first."""
        ordered = sorted(self._reads.items(), key=lambda item: (-item[1][0], item[0]))
        for (file, line, function), (count, size, sizes) in ordered[:MOST_READS]:
            frame = frames.with_text({"file": file, "line": line, "function": function})
            decides = becomes_size(file, line) or False
            self._recording.write("read", count=count, bytes=size, sizes=sizes, becomes_size=decides, **frame)
        self._turns.write(self._recording)
        if self._checks:
            text = "%d times the script checked a truth value that a phantom does not compute (`assert`, `if not ...: raise`); plimsoll assumed that the check holds"
            self._recording.note("checks-hold", text % self._checks)
        for (file, line, _), (count, _, _) in sorted(self._as_before.items()):
            place = "%s:%d" % (os.path.basename(file), line)
            text = "%d times %s read a number that was not computed, and got the number that it had read before; --assume %s=NUMBER sets another"
            self._recording.note("read-as-before", text % (count, place, place))
        if self._lines is not None and self._has_trained:
            for place in self._lines.unused():
                text = "--assume %s was not used: that line read no number that is unknown on the phantom; the report names the lines that did"
                self._recording.note("assumed-unused", text % place)

    def write_report(self) -> None:
        """The phantom's own account of this process."""
        report = _function(self._library, "plimsoll_phantom_report")
        if report is None:
            return
        report.argtypes, report.restype = [ctypes.c_char_p, ctypes.c_size_t], ctypes.c_size_t
        size = report(None, 0)
        for _ in range(3):  # It may grow between the two calls.
            buffer = ctypes.create_string_buffer(size + 1)
            size = report(buffer, len(buffer))
            if size < len(buffer):
                break
        self._recording.write("phantom", **json.loads(buffer.raw[:size].decode("utf-8", "replace")))


def function(name: str) -> Any:
    """A function that the phantom has for the agent; None without a phantom."""
    return _function(_library(), name)


def tell_group(color: Any, size: int, near: list[int]) -> None:
    """The phantom's NCCL cannot ask the other ranks how many of them chose `color`, and which are on this machine."""
    learn = function("plimsoll_phantom_group")
    if learn is not None:
        learn.argtypes, learn.restype = [ctypes.c_int, ctypes.c_int, ctypes.POINTER(ctypes.c_int), ctypes.c_int], None
        learn(color, size, (ctypes.c_int * len(near))(*near), len(near))


def tell_next_group(size: int, near: list[int]) -> None:
    """The communicator that this thread makes next is of so many ranks, of which these are on this machine; of 0: nobody knows."""
    expect = function("plimsoll_phantom_next_group")
    if expect is not None:
        expect.argtypes, expect.restype = [ctypes.c_int, ctypes.POINTER(ctypes.c_int), ctypes.c_int], None
        expect(size, (ctypes.c_int * len(near))(*near), len(near))


def bytes_of(tensor: Tensor) -> bytes | None:
    """What is in a tensor of a phantom's device, without being counted as a read of the script's; None if that is not known."""
    known = function("plimsoll_phantom_known")
    if known is None or not tensor.is_contiguous():
        return None
    known.argtypes, known.restype = [ctypes.c_uint64, ctypes.c_size_t, ctypes.c_void_p], ctypes.c_int
    out = ctypes.create_string_buffer(tensor.numel() * tensor.element_size())
    return out.raw if known(tensor.data_ptr(), len(out), out) else None


def set_bytes(tensor: Tensor, data: bytes) -> None:
    """Has a tensor of a phantom's device hold what `bytes_of` found in one of as many bytes."""
    computed = function("plimsoll_phantom_computed")
    if computed is not None and tensor.is_contiguous() and len(data) == tensor.numel() * tensor.element_size():
        computed.argtypes, computed.restype = [ctypes.c_uint64, ctypes.c_size_t, ctypes.c_char_p], None
        computed(tensor.data_ptr(), len(data), data)


def numbers_of(tensor: Tensor) -> list[int] | None:
    """The whole numbers of a tensor, likewise; on the host or on a real GPU, as they are."""
    if tensor.device.type != "cuda" or not is_here():
        return tensor.tolist()
    data = bytes_of(tensor)
    return None if data is None else list(struct.unpack("=%d%s" % (tensor.numel(), "bhiq"[tensor.element_size().bit_length() - 1]), data))


@functools.cache
def assumed(what: str) -> int | None:
    """How many of these the user said to assume (`--assume`); None for the usual."""
    with contextlib.suppress(OSError, ValueError), open(os.path.join(settings.session() or os.devnull, "phantom.conf")) as conf:
        for line in conf:
            key, _, value = line.partition("=")
            if key.strip() == f"assumed_{what}":
                return int(value)
    return None


def _said_reads() -> Any:
    """The numbers of `--assume FILE:LINE=NUMBER`, as triples of a file, a line and a number."""
    said = []
    with contextlib.suppress(OSError), open(os.path.join(settings.session() or os.devnull, "phantom.conf")) as conf:
        for key, _, value in (it.partition(" = ") for it in conf):
            if key == "assumed_read":
                place, _, number = value.strip().rpartition("=")
                file, _, line = place.rpartition(":")
                said.append((file, int(line), number))
    return said


def keep(share: Any) -> None:
    """The share of unknown values that filters let through, on this thread; None for the default."""
    _keep(-1 if share is None else round(share * 1_000_000))


@contextlib.contextmanager
def finding_all() -> Iterator[None]:
    """Filters are known to let everything through meanwhile, on this thread."""
    before = _keep(-2)
    try:
        yield
    finally:
        _keep(before)


def _keep(millionths: int) -> Any:
    tell = function("plimsoll_phantom_keep")
    if tell is None:
        return -1
    tell.argtypes, tell.restype = [ctypes.c_int], ctypes.c_int
    return tell(millionths)


@guarded
def descends(width: int, still: bool = False) -> None:
    """Something is minimized on this thread, whose losses have so many bytes, until it is `still`; 0 when it is over."""
    tell = function("plimsoll_phantom_descends")
    if tell is not None:
        tell.argtypes, tell.restype = [ctypes.c_int, ctypes.c_int], None
        tell(width, still)


def _outside_ours(frame: FrameType | None) -> FrameType | None:
    while frame is not None and frames.is_ours(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def _library() -> Any:
    """The phantom's functions, None if the process runs on no phantom that we know."""
    library = ctypes.CDLL(None)
    abi = _function(library, "plimsoll_phantom_abi")
    if abi is None:
        return None
    abi.argtypes, abi.restype = [], ctypes.c_int
    return library if abi() == 1 else None


def _function(library: Any, name: str) -> Any:
    """A fresh handle, so that setting its types has no effect on other users of the library."""
    if library is None:
        return None
    try:
        return library[name]
    except AttributeError:
        return None
