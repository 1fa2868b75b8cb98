"""The largest memory so far, for the callbacks of trainers."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any


class Watermark:
    """Peaks of this process's device."""

    def __init__(self) -> None:
        """Nothing was seen yet."""
        self._allocated = self._reserved = 0

    def look(self) -> None:
        """Takes in the allocator's peaks, which a program may reset; they are not reset here."""
        torch: Any = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
            self._allocated = max(self._allocated, torch.cuda.max_memory_allocated())
            self._reserved = max(self._reserved, torch.cuda.max_memory_reserved())

    def values(self) -> dict[str, float]:
        """The peaks in GiB; empty without a GPU."""
        if not self._reserved:
            return {}
        return {"gpu_peak_allocated_gib": self._allocated / 2**30, "gpu_peak_reserved_gib": self._reserved / 2**30}

    @staticmethod
    def of_rank(path: str | os.PathLike[str]) -> Path:
        """The file of this process, where several write one each."""
        path = Path(path)
        rank, world = os.environ.get("RANK", ""), os.environ.get("WORLD_SIZE", "")
        if rank.isdigit() and world.isdigit() and int(world) > 1:
            return path.with_name(f"{path.stem}-rank{rank}{path.suffix}")
        return path
