"""Is this a torch that we know? Read from its files, before any of it runs.

A torch without CUDA, or of a version that the phantom does not know, would not fail cleanly there: it
would crash or silently train on the CPU. So the answer has to come before the import. `plimsoll doctor`
asks here, too: there is no second list.
"""

import os
import re
import sys

EXIT_CODE = 86
"""How a process ends whose torch we do not support; the CLI then reports the sentence."""

SUPPORTED, EXPERIMENTAL, UNSUPPORTED = "supported", "experimental", "unsupported"

_COMPARED = {"2.11": ("13.0",)}
"""Releases of PyTorch and the CUDA they are built for whose predictions have been compared with GPUs."""

_RUN = {"2.6": ("12.4",), "2.7": ("12.6",), "2.8": ("12.8",), "2.9": ("12.8",), "2.10": ("12.8",), "2.15": ("13.2",)}
"""What the phantom's tests have run with, without a GPU to compare with (docs/pytorch-versions.md)."""

_RELEASES = tuple(sorted((*_RUN, *_COMPARED), key=lambda it: tuple(map(int, it.split(".")))))
_CUDAS = ("12", "13")

_NAMES_MODULES = (2, 10)
"""The first release that records which module asked for a block."""

_EXPECTED = "plimsoll needs PyTorch 2.6 to 2.11, or 2.15, built for CUDA 12 or 13, on Linux x86-64 with glibc"
_INSTALL = "pip install 'torch==2.11.*' (from PyPI, or --index-url https://download.pytorch.org/whl/cu130)"


class Build:
    """What a torch's own files say of it; None for what they do not say."""

    def __init__(self, version, cuda, hip=None, links_runtime=None):
        self.version = version
        self.cuda = cuda
        self.hip = hip
        self.links_runtime = links_runtime
        """Whether it looks CUDA's runtime up in a library of its own, where the phantom can take its place."""

    @property
    def release(self):
        """(2, 11) of 2.11.0+cu130."""
        found = re.match(r"(\d+)\.(\d+)\.\d", self.version or "")
        return found and (int(found.group(1)), int(found.group(2)))

    @property
    def is_release(self):
        """Not a night's, a container's or somebody's own, such as 2.12.0.dev20260401 and 2.11.0a0+git1234567."""
        return re.match(r"\d+\.\d+\.\d+(\.post\d+)?(\+|$)", self.version or "") is not None


def installed(origin):
    """The torch whose `__init__.py` is `origin`."""
    try:
        folder = os.path.dirname(origin)
        with open(os.path.join(folder, "version.py"), encoding="utf-8") as file:
            text = file.read()
    except (OSError, TypeError, ValueError):
        return Build(None, None)
    version, cuda, hip = (_assigned(text, name) for name in ("__version__", "cuda", "hip"))
    return Build(version, cuda, hip, _links_runtime(os.path.join(folder, "lib", "libc10_cuda.so")))


def _assigned(text, name):
    """The string that `name` is set to in `text`, None if it is None or absent."""
    found = re.search(r"^%s\b[^=\n]*=\s*['\"]([^'\"]+)['\"]" % re.escape(name), text, re.MULTILINE)
    return found.group(1) if found else None


def _links_runtime(library):
    try:
        with open(library, "rb") as file:
            return re.search(rb"\0libcudart[^\0/]*\.so[.\d]*\0", file.read()) is not None
    except OSError:
        return None


def objection(build, platform=None, machine=None, has_glibc=None):
    """Why we cannot work with that torch, as (reason, sentence); None if we can."""
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
        return "version", "the installed PyTorch does not say its version; %s: %s" % (_EXPECTED, _INSTALL)
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
    known = [tuple(map(int, it.split("."))) for it in _RELEASES]
    if build.release is None or build.release < known[0]:
        return "version", "%s, which is older than plimsoll knows; %s: %s" % (found, _EXPECTED, _INSTALL)
    if known[-1] < build.release:
        return "version", "%s, which is newer than this plimsoll knows; %s: %s" % (found, _EXPECTED, _INSTALL)
    if build.release not in known:
        return "version", "%s, which was never run with plimsoll; %s: %s" % (found, _EXPECTED, _INSTALL)
    if cuda.split(".")[0] not in _CUDAS:
        return "cuda-version", "%s; %s: %s" % (found, _EXPECTED, _INSTALL)
    if build.links_runtime is False:
        return (
            "static-runtime",
            "%s and holds CUDA's runtime in itself, so the phantom cannot take its place; build it without "
            "CAFFE2_STATIC_LINK_CUDA, or install a wheel: %s" % (found, _INSTALL),
        )
    return None


def remark(build, has_lock=None):
    """What users of that torch, to which there is no objection, have to know of its predictions; None for nothing."""
    release = "%d.%d" % build.release
    of = "PyTorch %s for CUDA %s" % (build.version.split("+")[0], build.cuda)
    said = []
    if not build.is_release:
        said.append("PyTorch %s is not a release, and nothing is known of it but its number" % build.version)
    elif build.cuda in _RUN.get(release, ()):
        said.append("predictions for %s have not been compared with a GPU, as those for 2.11 have" % of)
    elif build.cuda not in _COMPARED.get(release, ()):
        said.append("%s has not been tried on the phantom; other builds of it have" % of)
    if build.release < _NAMES_MODULES:
        said.append(
            "it does not record which module asked for a block, so lines of code are named, and modules for parameters only"
        )
    if not (_has_lock() if has_lock is None else has_lock):
        said.append("this Python runs without the global lock, and nobody has tried that")
    return "; ".join(said) or None


def verdict(origin):
    """How far the torch whose `__init__.py` is `origin` is supported, and why: (standing, sentence)."""
    build = installed(origin)
    found = objection(build)
    if found is not None:
        return UNSUPPORTED, found[1]
    said = remark(build)
    if said is not None:
        return EXPERIMENTAL, said
    return SUPPORTED, "predictions for this PyTorch have been compared with GPUs"


def _has_glibc():
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") is not None
    except (ValueError, OSError, AttributeError):
        return False


def _has_lock():
    """Free-threaded builds of Python 3.13 and later, with `python3.13t`, have none."""
    return getattr(sys, "_is_gil_enabled", lambda: True)()
