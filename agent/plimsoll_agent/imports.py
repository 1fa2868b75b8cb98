"""Finds the CUDA functions that a torch calls and the phantom lacks. Reads the headers of its libraries, without loading them.

`entry_points.txt`, which the build of plimsoll puts beside this file, has the functions of the phantom. Takes a tenth of a
second, for an untested torch.
"""

from __future__ import annotations

import glob
import mmap
import os
import re
import struct

TYPE_CHECKING = False  # As typing has it, which is not imported for this.
if TYPE_CHECKING:
    from typing import Any

_TABLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "entry_points.txt")
_OURS = re.compile(rb"(?:__)?(?!cuFile|cupti|cusparseLt|nvrtc|nvshmem|nvJitLink|nvtx)(?:cu|nv|nccl)[a-z]*[A-Z]")
"""Functions of NVIDIA's libraries, but of those that stay the real ones: they compile, trace, read files or talk to other GPUs,
and reach a device through the others."""
_BY_NAME = re.compile(rb"(?<=\0)(?:nvml|cu)[A-Z][A-Za-z0-9_]+(?=\0)")
"""What `c10/cuda/driver_api.cpp` looks up while it runs: texts in `libc10_cuda.so`."""
_DYNAMIC_SYMBOLS, _GNU_HASH = 11, 0x6FFFFFF6


def unanswered(folder: str) -> list[Any]:
    """The functions, sorted, that the libraries in `folder` (`torch/lib`) want of CUDA and the phantom has no answer to."""
    answered = _answered()
    if not answered:
        return []  # Sources that were never built: there is nothing to compare with.
    paths = sorted(glob.glob(os.path.join(folder, "*.so")))
    missing = {it for path in paths for it in _symbols(path, True)} - answered
    if missing:  # Some may be another of these libraries'.
        missing -= {it for path in paths for it in _symbols(path, False)}
    return sorted(missing | (_looked_up(os.path.join(folder, "libc10_cuda.so")) - answered))


def _answered() -> set[Any]:
    try:
        with open(_TABLE, encoding="utf-8") as file:
            return {line.split()[1] for line in file if line.strip() and not line.startswith("#")}
    except OSError:
        return set()


def _symbols(path: str, undefined: Any) -> Any:
    """Names of CUDA functions that the library at `path` wants (or has, where `undefined` is false)."""
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _read(data, undefined)
    except (OSError, ValueError, IndexError, struct.error):
        return set()  # Not a library.


def _read(data: Any, undefined: Any) -> Any:
    if data[:6] != b"\x7fELF\x02\x01":
        return set()
    (table,) = struct.unpack_from("<Q", data, 0x28)
    size, count = struct.unpack_from("<HH", data, 0x3A)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, table + size * it) for it in range(count)]
    symbols = next((it for it in sections if it[1] == _DYNAMIC_SYMBOLS), None)
    if symbols is None:
        return set()
    at, texts, n = symbols[4], sections[symbols[6]][4], symbols[5] // 24
    # What a library wants comes before what it has: the second is hashed.
    first = next((struct.unpack_from("<I", data, it[4] + 4)[0] for it in sections if it[1] == _GNU_HASH), None)
    lo, hi = (0, n if first is None else first) if undefined else (first or 0, n)
    found = set()
    for name, _, _, section, _, _ in struct.iter_unpack("<IBBHQQ", data[at + 24 * lo : at + 24 * hi]):
        if (section == 0) == undefined and _OURS.match(data, texts + name):
            found.add(data[texts + name : data.find(b"\0", texts + name)].decode("ascii", "replace"))
    return found


def _looked_up(path: str) -> set[Any]:
    try:
        with open(path, "rb") as file:
            return {it.decode() for it in _BY_NAME.findall(file.read())}
    except OSError:
        return set()
