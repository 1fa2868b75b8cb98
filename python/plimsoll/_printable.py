"""Names of files, functions and variables as they may be shown: a terminal obeys what it finds in them."""

from __future__ import annotations

import re
import unicodedata


def printable(text: str) -> str:
    """`text` on one line, in which everything can be seen; the rest is written out as the program does: `\\x1b`, `\\n`, `\\u{202e}`."""
    seen = "".join(it if it.isprintable() or unicodedata.category(it) == "Zs" else _escape(it) for it in text)
    # Who reads the log of a job, too: this is a command to a runner of Azure.
    return re.sub(r"##(?=[A-Za-z]*\[)", r"\\x23#", seen)


def _escape(it: str) -> str:
    return ascii(it)[1:-1] if ord(it) < 0x80 else f"\\u{{{ord(it):x}}}"
