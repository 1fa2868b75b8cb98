"""Sizes of memory: plain integers of bytes that print as people read them."""

from __future__ import annotations

import re

_UNITS = {
    "": 1,
    "b": 1,
    "k": 1 << 10,
    "ki": 1 << 10,
    "kib": 1 << 10,
    "m": 1 << 20,
    "mi": 1 << 20,
    "mib": 1 << 20,
    "g": 1 << 30,
    "gi": 1 << 30,
    "gib": 1 << 30,
    "t": 1 << 40,
    "ti": 1 << 40,
    "tib": 1 << 40,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
}


class Size(int):
    """A number of bytes. `Size("20GiB") == 20 * 2**30`; `str()` gives `20.00 GiB`."""

    def __new__(cls, given: int | str) -> Size:
        """From bytes, or from a text as the command line takes it: `20GiB`, `512MiB`, `1.5g`, `20GB`."""
        return super().__new__(cls, given if isinstance(given, int) else _parsed(given))

    def __str__(self) -> str:
        """As the reports print it."""
        if self < 1 << 10:
            return f"{int(self)} B"
        for unit, scale, digits in (("TiB", 1 << 40, 2), ("GiB", 1 << 30, 2), ("MiB", 1 << 20, 1), ("KiB", 1 << 10, 1)):
            if self >= scale:
                return f"{self / scale:.{digits}f} {unit}"
        return f"{int(self)} B"

    def __repr__(self) -> str:
        return f"Size({int(self)}, {str(self)!r})"


def _parsed(text: str) -> int:
    found = re.fullmatch(r"\s*([0-9][0-9_]*(?:\.[0-9]+)?)\s*([a-zA-Z]*)\s*", text)
    if found is None or found[2].lower() not in _UNITS:
        raise ValueError(f"{text!r} is no size; write it as in '20GiB', '512MiB' or '1.5g'")
    return int(float(found[1].replace("_", "")) * _UNITS[found[2].lower()])
