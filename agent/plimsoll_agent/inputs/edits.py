"""Changes the text of files of the script: another number, for `plimsoll fit --find-max train.py:14=1..64`, or switches of a
framework that a search tries.

`PLIMSOLL_EDITS` lists the file, the byte offset, the old text and the new text. The agent writes the changed file before the program
reads it, into the layer that takes all writes of the program: the user's file stays unchanged.
"""

from __future__ import annotations

import json


def write(asked: str) -> None:
    """Called before the script is read; in a process that it starts the files are so already."""
    for it in json.loads(asked):
        path, start, was, new = it["file"], it["start"], it["was"].encode(), str(it["is"]).encode()
        with open(path, "rb") as file:
            text = file.read()
        if len(text) == it["size"] and text[start : start + len(was)] == was:
            with open(path, "wb") as file:
                file.write(text[:start] + new + text[start + len(was) :])
        elif text[start : start + len(new)] != new:  # Else a process before this one wrote it.
            raise SystemExit("plimsoll: %r changed after plimsoll read it; start again" % path)
