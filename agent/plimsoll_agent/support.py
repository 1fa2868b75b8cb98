"""Is this a torch that we know? Read from its files, before any of it runs.

A torch without CUDA, or another version, would not fail cleanly on the phantom: it would crash or
silently train on the CPU. So the answer has to come before the import.
"""

import os
import re
import sys

EXIT_CODE = 86
"""How a process ends whose torch we do not support; the CLI then reports the sentence."""

_SUPPORTED = {"2.11": "13", "2.10": "12", "2.9": "12", "2.8": "12", "2.7": "12", "2.6": "12"}
"""Versions of PyTorch, and the CUDA that each has to be built for."""

_EXPECTED = "plimsoll needs PyTorch 2.11 built for CUDA 13, or 2.8 built for CUDA 12, on Linux x86-64"
_INSTALL = "pip install 'torch==2.11.*' (from PyPI, or --index-url https://download.pytorch.org/whl/cu130)"


def installed(origin):
    """(version, cuda) of the torch whose `__init__.py` is `origin`; None for what is not known."""
    try:
        with open(os.path.join(os.path.dirname(origin), "version.py"), encoding="utf-8") as file:
            text = file.read()
    except (OSError, TypeError, ValueError):
        return None, None
    return _assigned(text, "__version__"), _assigned(text, "cuda")


def _assigned(text, name):
    """The string that `name` is set to in `text`, None if it is None or absent."""
    found = re.search(r"^%s\b[^=\n]*=\s*['\"]([^'\"]+)['\"]" % re.escape(name), text, re.MULTILINE)
    return found.group(1) if found else None


def objection(version, cuda, platform=None, machine=None):
    """Why we cannot work with that torch, as (reason, sentence); None if we can."""
    platform = platform or sys.platform
    machine = machine or os.uname().machine
    if not platform.startswith("linux"):
        return "not-linux", "this is %s; %s" % (platform, _EXPECTED)
    if machine not in ("x86_64", "AMD64"):
        return "not-x86-64", "this machine is %s; %s" % (machine, _EXPECTED)
    if version is None:
        return "version", "the installed PyTorch does not say its version; %s: %s" % (_EXPECTED, _INSTALL)
    if cuda is None:
        return (
            "no-cuda-build",
            "the installed PyTorch %s is built without CUDA; %s: %s" % (version, _EXPECTED, _INSTALL),
        )
    release = re.match(r"(\d+\.\d+)\.\d", version)
    if release is None or _SUPPORTED.get(release.group(1)) != cuda.split(".")[0]:
        return (
            "version",
            "the installed PyTorch is %s (CUDA %s); %s: %s" % (version, cuda, _EXPECTED, _INSTALL),
        )
    return None


def remark(version):
    """What users of that supported torch have to know of its predictions; None if there is nothing."""
    if version.startswith("2.8."):
        return (
            "predictions for PyTorch 2.8 have not been compared with a GPU, as those for 2.11 have; it does not record "
            "which module asked for a block, so lines of code are named, and modules for parameters only"
        )
    return None
