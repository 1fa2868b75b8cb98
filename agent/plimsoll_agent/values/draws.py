"""The state of a host generator after many draws, for weights that have no values.

Advancing it by hundreds of millions of draws takes a tenth of a second, and each run of one script makes the same draws. The
nursery makes memory that its children share; each child looks there first, and stores what it computed.
"""

from __future__ import annotations

import ctypes
import mmap
import struct
import zlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from plimsoll_agent.kinds import Tensor

_SLOTS = 8192
"""A model of a few hundred tensors makes as many, and two in one place would push each other out each time."""
_STATE = 5056
"""Bytes of `torch.Generator.get_state()`; others are counted through each time."""
_HEAD = struct.Struct("<IQ")
"""A checksum of what follows, so that half of an entry is none; and the number of draws. The states before and after follow."""
_SLOT = _HEAD.size + 2 * _STATE

_shared = None


def share() -> None:
    """What is found from now on is seen by every process that is forked from this one, and by this one."""
    global _shared
    _shared = mmap.mmap(-1, _SLOTS * _SLOT)


def draw(drawn: Any, state: Tensor, n: int) -> Any:
    """Changes `state`, a tensor, as `n` draws would; `drawn` counts through them, and says whether it knows such a state."""
    if _shared is None or state.numel() != _STATE:
        return drawn(state.data_ptr(), state.numel(), n)
    before = ctypes.string_at(state.data_ptr(), _STATE)
    at = zlib.crc32(before, n & 0xFFFFFFFF) % _SLOTS * _SLOT
    slot = _shared[at : at + _SLOT]
    check, known = _HEAD.unpack_from(slot)
    if known == n and slot[_HEAD.size : -_STATE] == before and check == zlib.crc32(slot[4:]):
        ctypes.memmove(state.data_ptr(), slot[-_STATE:], _STATE)
        return 1
    is_known = drawn(state.data_ptr(), state.numel(), n)
    if is_known:
        rest = struct.pack("<Q", n) + before + ctypes.string_at(state.data_ptr(), _STATE)
        _shared[at : at + _SLOT] = struct.pack("<I", zlib.crc32(rest)) + rest
    return is_known
