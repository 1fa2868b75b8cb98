"""Finds and starts the program that does the work."""

from __future__ import annotations

import os
import shutil
import site
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path


class PlimsollError(RuntimeError):
    """plimsoll could not do what was asked; the text says what was found, what was expected and what to do."""


def binary() -> str:
    """The program: `PLIMSOLL_BIN` if that is set, else the one installed with this package, else one in `PATH`."""
    given = os.environ.get("PLIMSOLL_BIN")
    if given:
        if os.access(given, os.X_OK):
            return given
        raise PlimsollError(f"PLIMSOLL_BIN is {given}, which is not a program; set it to the program plimsoll, or unset it")
    folders = [sysconfig.get_path("scripts"), os.path.dirname(sys.executable)]
    try:
        folders.append(sysconfig.get_path("scripts", sysconfig.get_preferred_scheme("user")))
    except (AttributeError, KeyError, ValueError):
        pass
    # Where `pip install --target` puts it.
    folders.append(str(Path(__file__).resolve().parents[1] / "bin"))
    for folder in folders:
        path = os.path.join(folder or "", "plimsoll")
        if folder and os.access(path, os.X_OK):
            return path
    found = shutil.which("plimsoll")
    if found is None:
        raise PlimsollError(
            f"the program plimsoll is neither in {folders[0]} nor in PATH; add its folder to PATH, or set PLIMSOLL_BIN to the program "
            "(`plimsoll doctor` prints the line)"
        )
    return found


def version() -> str:
    """The version of the program, as in `0.1.0`."""
    return run(["--version"]).stdout.split()[1]


def run(
    words: Sequence[str],
    *,
    inherit: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Runs the program. With `inherit` its output goes where the output of this process goes."""
    pipe = None if inherit else subprocess.PIPE
    command = [binary(), *words]
    # A pytest worker or a notebook may have closed its standard input.
    return subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=pipe,
        stderr=pipe,
        text=True,
        errors="replace",
        env=_environment(),
        check=False,
    )


def _environment() -> Mapping[str, str]:
    """The environment of this process, in which processes of plimsoll find this package, installed or not."""
    package = str(Path(__file__).resolve().parents[1])
    if package in site.getsitepackages() or package == site.getusersitepackages():
        # Naming that folder would put it before the standard library.
        return os.environ
    path = [it for it in (os.environ.get("PYTHONPATH"), package) if it]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path)}


def module(name: str) -> list[str]:
    """What starts a module of this package, in this very Python. It imports nothing from the working folder, which may hold
    files of others; before 3.11 Python has no option for that."""
    return [sys.executable, *(["-P"] if sys.version_info >= (3, 11) else []), "-m", name]


def said(stderr: str | None) -> str:
    """The lines that plimsoll itself wrote to standard error, without its name."""
    lines = (stderr or "").splitlines()
    own = [line[len("plimsoll: ") :] for line in lines if line.startswith("plimsoll: ")]
    return "\n".join(own)
