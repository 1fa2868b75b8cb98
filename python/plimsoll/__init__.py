"""Will it fit? GPU memory for PyTorch training, from Python.

    import plimsoll

    def train(batch_size):
        ...

    if __name__ == "__main__":
        answer = plimsoll.predict(train, 32, gpu="rtx4090")
        print(answer.fits, answer.peak)

The work is done by the program `plimsoll` that is installed with this package; functions are run in processes of
their own. Importing this package imports the standard library only.
"""

import pathlib as _pathlib

# Another project on PyPI is called plimsoll and has a module of that name: pip writes the two over each other.
_others = sorted(it.name for it in _pathlib.Path(__file__).resolve().parents[1].glob("plimsoll-[0-9]*.dist-info"))
if _others:
    raise ImportError(
        "the package plimsoll (%s), another project, shares this folder with plimsoll-gpu: pip uninstall plimsoll plimsoll-gpu, "
        "then pip install plimsoll-gpu" % _others[0].removesuffix(".dist-info")
    )

from plimsoll._binary import PlimsollError, binary, version
from plimsoll._calls import CannotReach, FunctionFailed
from plimsoll._fit import Fitted, fit
from plimsoll._held import Held, Holder, Released, held, release
from plimsoll._notebook import load_ipython_extension, unload_ipython_extension
from plimsoll._predict import predict
from plimsoll._record import Recorder, record
from plimsoll._results import Finding, Growth, Line, OutOfMemory, Prediction
from plimsoll._sizes import Size
from plimsoll._view import View, view
from plimsoll._watch import Alarm, Watch, watch

__all__ = [
    "Alarm",
    "CannotReach",
    "Finding",
    "Fitted",
    "FunctionFailed",
    "Held",
    "Holder",
    "Growth",
    "Line",
    "OutOfMemory",
    "PlimsollError",
    "Prediction",
    "Recorder",
    "Released",
    "Size",
    "View",
    "Watch",
    "binary",
    "fit",
    "held",
    "load_ipython_extension",
    "predict",
    "record",
    "release",
    "unload_ipython_extension",
    "version",
    "view",
    "watch",
]
