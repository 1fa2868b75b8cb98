"""A whole number in a file of the script's is another one, as `plimsoll fit --find-max train.py:14=1..64` wants it.

`PLIMSOLL_NUMBER` says the file, the byte, what stands there and what is to stand there. The file is written anew before
the program reads it, into the layer that takes all its writes: the user's own stays as it is.
"""

import json
import os


def write():
    """Called before the script is read; in a process that it starts the number is there already."""
    told = json.loads(os.environ["PLIMSOLL_NUMBER"])
    path, start, was, value = told["file"], told["start"], told["was"].encode(), str(told["is"]).encode()
    with open(path, "rb") as file:
        text = file.read()
    if text[start : start + len(was)] != was or text[start + len(was) :][:1].isalnum():
        if text[start : start + len(value)] == value:
            return  # A process before this one wrote it.
        raise SystemExit("plimsoll: %s is not as it was when its number was read; start again" % path)
    with open(path, "wb") as file:
        file.write(text[:start] + value + text[start + len(was) :])
