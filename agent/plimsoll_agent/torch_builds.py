"""Decides from the files of a torch, before any of it runs, whether plimsoll supports it.

A torch without CUDA, or one that calls CUDA functions that the phantom lacks, would not fail cleanly there: it
would crash or silently train on the CPU. So the answer has to come before the import. `plimsoll doctor` uses this
module, too. `releases/` has one file for each tested release, which `cargo xtask torch` writes; for other releases this
module reads the libraries.
"""

from __future__ import annotations

import json
import os
import re
import sys

from plimsoll_agent import imports

TYPE_CHECKING = False  # As typing has it, which is not imported for this.
if TYPE_CHECKING:
    from typing import Any

    from plimsoll_agent.kinds import Torch

EXIT_CODE = 86
"""How a process ends whose torch we do not support; the CLI then reports the sentence."""

SUPPORTED, EXPERIMENTAL, UNKNOWN, UNSUPPORTED = "supported", "experimental", "unknown", "unsupported"
"""Compared with a GPU; tried and not compared; never tried, but nothing speaks against it; refused."""

_RELEASES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "releases")
_OLDEST = (2, 6)
"""Older ones do not record what the agent reads."""
_CUDAS = ("12", "13")
"""Whose structures the phantom fills in as their headers have them."""

_NAMES_MODULES = (2, 10)
"""The first release that records which module asked for a block."""

_EXPECTED = "plimsoll needs PyTorch 2.6 or later, built for CUDA 12 or 13, on Linux x86-64 with glibc"
_INSTALL = "pip install torch (from PyPI; docs/pytorch-versions.md lists what has been tried)"
_NAMED = 5
"""How many missing functions a sentence names."""


def known(release: Any) -> Any:
    """The file in `releases/` of (2, 14); None for an untested release."""
    try:
        with open(os.path.join(_RELEASES, "%d.%d.json" % release), encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError):
        return None


class Build:
    """What a torch's own files say of it; None for what they do not say."""

    def __init__(self, version: Any, cuda: Any, hip: Any = None, links_runtime: Any = None, libraries: Any = None) -> None:
        self.version = version
        self.cuda = cuda
        self.hip = hip
        self.links_runtime = links_runtime
        """Whether it looks CUDA's runtime up in a library of its own, where the phantom can take its place."""
        self.libraries = libraries
        """The folder of its libraries."""

    @property
    def release(self) -> Any:
        """(2, 11) of 2.11.0+cu130."""
        found = re.match(r"(\d+)\.(\d+)\.\d", self.version or "")
        return found and (int(found.group(1)), int(found.group(2)))

    @property
    def is_release(self) -> bool:
        """Not a nightly build, a container's build or an own build, such as 2.12.0.dev20260401 and 2.11.0a0+git1234567."""
        return re.match(r"\d+\.\d+\.\d+(\.post\d+)?(\+|$)", self.version or "") is not None


def installed(origin: Any) -> Build:
    """The torch whose `__init__.py` is `origin`."""
    try:
        folder = os.path.dirname(origin)
        with open(os.path.join(folder, "version.py"), encoding="utf-8") as file:
            text = file.read()
    except (OSError, TypeError, ValueError):
        return Build(None, None)
    version, cuda, hip = (_assigned(text, name) for name in ("__version__", "cuda", "hip"))
    libraries = os.path.join(folder, "lib")
    return Build(version, cuda, hip, _links_runtime(os.path.join(libraries, "libc10_cuda.so")), libraries)


def _assigned(text: str, name: str) -> Any:
    """The string that `name` is set to in `text`, None if it is None or absent."""
    found = re.search(r"^%s\b[^=\n]*=\s*['\"]([^'\"]+)['\"]" % re.escape(name), text, re.MULTILINE)
    return found.group(1) if found else None


def _links_runtime(library: Any) -> bool | None:
    try:
        with open(library, "rb") as file:
            return re.search(rb"\0libcudart[^\0/]*\.so[.\d]*\0", file.read()) is not None
    except OSError:
        return None


def objection(build: Any, platform: Any = None, machine: Any = None, has_glibc: bool | None = None) -> tuple[str, str] | None:
    """Why plimsoll cannot work with that torch, as (reason, sentence); None if it can."""
    platform = platform or sys.platform
    machine = machine or os.uname().machine
    version, cuda = build.version, build.cuda
    if not platform.startswith("linux"):
        return "not-linux", "this is %s; %s" % (platform, _EXPECTED)
    if machine not in ("x86_64", "AMD64"):
        return "not-x86-64", "this machine is %s; %s" % (machine, _EXPECTED)
    if not (_has_glibc() if has_glibc is None else has_glibc):
        return "no-glibc", "this Python's C library is not glibc (musl, as on Alpine?); %s" % _EXPECTED
    if version is None:
        return "version", "the installed PyTorch reports no version; %s: %s" % (_EXPECTED, _INSTALL)
    if build.hip is not None:
        return (
            "rocm-build",
            "the installed PyTorch %s is built for AMD's ROCm %s, and the phantom is an NVIDIA GPU; %s: %s"
            % (version, build.hip, _EXPECTED, _INSTALL),
        )
    if cuda is None:
        return (
            "no-cuda-build",
            "the installed PyTorch %s is built without CUDA; %s: %s" % (version, _EXPECTED, _INSTALL),
        )
    found = "the installed PyTorch is %s (CUDA %s)" % (version, cuda)
    if build.release is None:
        return "version", "%s, a version that plimsoll cannot read; %s: %s" % (found, _EXPECTED, _INSTALL)
    if build.release < _OLDEST:
        return (
            "version",
            "%s, which is older than 2.6 and does not record what plimsoll reads; %s: %s" % (found, _EXPECTED, _INSTALL),
        )
    if cuda.split(".")[0] not in _CUDAS:
        return (
            "cuda-version",
            "%s, and the layout of that CUDA's structures (cudaDeviceProp and others) is unknown here; %s: %s"
            % (found, _EXPECTED, _INSTALL),
        )
    if build.links_runtime is False:
        return (
            "static-runtime",
            "%s and contains CUDA's runtime, so the phantom cannot replace the runtime; build it without "
            "CAFFE2_STATIC_LINK_CUDA, or install a wheel: %s" % (found, _INSTALL),
        )
    missing = [] if _pythons(build) or build.libraries is None else imports.unanswered(build.libraries)
    if missing:
        named = ", ".join(missing[:_NAMED]) + (", ..." if _NAMED < len(missing) else "")
        return (
            "entry-points",
            "%s, which is untested with plimsoll, and the phantom lacks %d of the CUDA functions that it calls: %s; "
            "a newer plimsoll may have them; or install a tested release: %s"
            % (found, len(missing), named, _INSTALL),
        )
    return None


def _pythons(build: Any) -> Any:
    """The Pythons that this build was tried with; empty if it is untested."""
    about = build.is_release and known(build.release)
    return about["tried"].get(build.cuda, []) if about else []


def standing(build: Any) -> Any:
    """How well a torch without an objection is tested."""
    if not _pythons(build):
        return UNKNOWN
    return SUPPORTED if build.cuda in known(build.release)["compared"] else EXPERIMENTAL


def remark(build: Any, has_lock: bool | None = None) -> Any:
    """What limits predictions for a torch without an objection; None if nothing does."""
    of = "PyTorch %s for CUDA %s" % (build.version.split("+")[0], build.cuda)
    its = standing(build)
    said = []
    if not build.is_release:
        said.append("PyTorch %s is not a release, and is untested" % build.version)
    elif its == UNKNOWN:
        others = known(build.release) is not None
        said.append("%s is untested with plimsoll%s" % (of, ", other builds of it are tested" if others else ""))
    if its == UNKNOWN:
        said.append("the phantom has every CUDA function that it calls; whether its predictions are right is unknown")
    elif its == EXPERIMENTAL:
        said.append("predictions for %s have not been compared with a GPU" % of)
    if build.release < _NAMES_MODULES:
        said.append(
            "it does not record which module allocated a block, so reports name lines of code, and modules for parameters only"
        )
    if not (_has_lock() if has_lock is None else has_lock):
        said.append("this Python runs without the global interpreter lock, which is untested")
    return "; ".join(said) or None


def verdict(origin: Any) -> tuple[Any, ...]:
    """How far the torch whose `__init__.py` is `origin` is supported, and why: (standing, sentence)."""
    build = installed(origin)
    found = objection(build)
    if found is not None:
        return UNSUPPORTED, found[1]
    its, said = standing(build), remark(build)
    if its == SUPPORTED:
        compared = "predictions for this PyTorch have been compared with GPUs"
        return SUPPORTED, "; ".join(filter(None, (compared, said)))
    return its, said


def architectures(torch: Torch) -> list[int]:
    """Compute capabilities that the imported torch has kernels for, 90 for 9.0. Asked once CUDA is in use: before,
    the question alone would keep forked children from using it."""
    names = (flag[3:] for flag in (torch._C._cuda_getArchFlags() or "").split() if flag.startswith("sm_"))
    return [int(name) for name in names if name.isdigit()]


def _has_glibc() -> bool:
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") is not None
    except (ValueError, OSError, AttributeError):
        return False


def _has_lock() -> bool:
    """Free-threaded builds of Python 3.13 and later, with `python3.13t`, have none."""
    return getattr(sys, "_is_gil_enabled", lambda: True)()
