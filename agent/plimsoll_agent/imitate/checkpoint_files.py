"""Checkpoints that were there before: a run on the phantom, whose numbers are nobody's, does not write over them; nor do
the few steps that are measured of a plan.

What is in the file stays, and the script goes on as if it had written: a load that follows finds what was there. Files that were
not there are written, as it is the script that asks; so are those that this run wrote itself, and files without a byte, which a
program makes for its own use. Saving takes no memory of the device, so nothing that is counted changes.
"""

import functools
import os
import sys


class Checkpoints:
    """Which files are this run's own."""

    def __init__(self, torch, note):
        self._torch, self._note = torch, note
        self._own = set()
        self._is_told = self._has_safetensors = False

    def install(self):
        """Takes the place of `torch.save`."""
        wrapped = self._around(self._torch.save, "f", 1)
        self._torch.save = self._torch.serialization.save = wrapped

    def step_ended(self):
        """Libraries that save otherwise are imported by now."""
        safetensors = sys.modules.get("safetensors.torch")
        if not self._has_safetensors and safetensors is not None:
            self._has_safetensors = True
            safetensors.serialize_file = self._around(safetensors.serialize_file, "filename", 1)

    def _around(self, write, name, position):
        @functools.wraps(write)
        def wrapped(*args, **kwargs):
            file = kwargs.get(name, args[position] if position < len(args) else None)
            if not self._was_there(file):
                return write(*args, **kwargs)
            if not self._is_told:
                self._is_told = True
                self._note(
                    "checkpoint-kept",
                    "%s was there before, so it was left as it is: what this run would write has learned nothing" % os.fspath(file),
                )
            return None

        return wrapped

    def _was_there(self, file):
        if not isinstance(file, (str, os.PathLike)):
            return False  # Opened by the script, and so emptied.
        path = os.path.abspath(os.fspath(file))
        if path in self._own:
            return False
        if os.path.isfile(path) and os.path.getsize(path):
            return True
        self._own.add(path)
        return False
