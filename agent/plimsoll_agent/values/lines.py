"""The number that a line reads where it is unknown on the phantom.

The user sets it (`--assume train.py:14=280`). Or the line read known numbers before, which it gets again in their
order: a model that regulates lengths by the durations of its data trains with those, and speaks with durations of its own.
"""

from __future__ import annotations

import collections
import ctypes
import functools
import os
import struct
import threading
from typing import TYPE_CHECKING, Any

from plimsoll_agent import patch

if TYPE_CHECKING:
    from types import FrameType

    from plimsoll_agent.kinds import Function, Tensor, Torch

MOST = 4096
"""So many numbers of a line are remembered, and of so many lines."""
LARGEST = 1 << 31
"""What is larger is no size."""
SAID, AS_BEFORE = 1, 2
"""What the agent reports to the phantom: the number that it wrote into the memory that the program read."""
_READERS = ["item", "tolist", "__int__", "__index__", "__float__", "__bool__", "cpu", "to"]
_FORMATS = {"int64": "q", "int32": "i", "int16": "h", "int8": "b", "uint8": "B", "bool": "?", "float64": "d", "float32": "f", "float16": "e"}


class Lines:
    """What the lines of this process read."""

    def __init__(self, torch: Torch, said: Any) -> None:
        """`said` are triples of what the user said: the end of a file's path, a line, and a number."""
        self._said = {(os.path.basename(file), line): (os.path.normpath(file), number) for file, line, number in said}
        self._unused = set(self._said)
        self._known: dict[Any, Any] = {}
        self._reading = threading.local()
        if said:
            self._watch_kinds(torch.Tensor)

    @property
    def matter(self) -> bool:
        """Whether any line is answered otherwise than with zeros."""
        return bool(self._said or self._known)

    def learn(self, place: Any, at: Any) -> None:
        """The line at `place` read the number of 64 bits at `at`, which is known."""
        number = ctypes.c_int64.from_address(at).value
        if 0 <= number < LARGEST and (place in self._known or len(self._known) < MOST):
            self._known.setdefault(place, collections.deque(maxlen=MOST)).append(number)

    def answer(self, frame: FrameType, place: Any, at: Any, size: int, is_answer: bool) -> Any:
        """Writes a number into `size` bytes at `at`, which the line at `place`, on `frame`, reads. Which it was, 0 for none."""
        number = self._said_of(frame)
        if number is not None:
            kind = getattr(self._reading, "kind", None)
            ctypes.memmove(at, _bytes(number, kind, size), size)
            return SAID
        known = self._known.get(place)
        # A helper that reads sizes may read losses, too, which have 32 bits.
        if known is None or is_answer or size != 8:
            return 0
        ctypes.memmove(at, struct.pack("<q", known[0]), size)
        known.rotate(-1)
        return AS_BEFORE

    def unused(self) -> list[Any]:
        """Lines that the user named in `--assume` and that read no unknown number."""
        return sorted("%s:%d" % (self._said[it][0], it[1]) for it in self._unused)

    def _said_of(self, frame: FrameType | None) -> Any:
        while self._said and frame is not None:
            file = frame.f_code.co_filename
            place = (os.path.basename(file), frame.f_lineno)
            end, number = self._said.get(place, (None, None))
            if end is not None and ("/" + file).endswith("/" + end.lstrip("/")):
                self._unused.discard(place)
                return number
            frame = frame.f_back
        return None

    def _watch_kinds(self, tensor: Tensor) -> None:
        """From now on it is known of what kind a tensor is whose values are read."""
        for name in _READERS:
            own = getattr(tensor, name, None)
            if own is not None:
                patch.put(tensor, name, self._telling(own))

    def _telling(self, own: Any) -> Function:
        @functools.wraps(own)
        def call(tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
            self._reading.kind = str(tensor.dtype).rpartition(".")[2]
            try:
                return own(tensor, *args, **kwargs)
            finally:
                self._reading.kind = None

        return call


def _bytes(number: int, kind: Any, size: int) -> Any:
    """`number`, as written, as often as it goes into so many bytes of elements of that kind; None for what PyTorch itself reads, which
    are sizes and truth values."""
    value = float(number)
    if kind == "bfloat16":
        one = struct.pack("<f", value)[2:]
    else:
        letter = _FORMATS.get(kind) or {1: "?", 4: "i"}.get(size, "q")
        if letter not in "def?":
            value = int(value)
        one = struct.pack("<" + letter, value)
    return (one * (size // len(one) + 1))[:size]
