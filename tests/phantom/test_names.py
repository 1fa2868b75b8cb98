"""Every fragment of a mangled name that crates/values looks for is in the libraries that are installed.

A kernel that PyTorch renames is not followed any more, and nothing else says so: the name that is looked for matches
nothing. A new torch fails here first, with the fragments that are to be looked at in crates/values/src/names.rs.
"""

import functools
import json
import re
import struct
import subprocess
from pathlib import Path

import pytest
from harness import PYTHON, ROOT

FRAGMENT = re.compile(r'^    ([A-Z0-9_]+) = b"([^"]+)";(?: // (.+))?$', re.M)
REMARK = re.compile(r"(Since|Until|Before) (torch|CUDA) ([0-9.]+)\.$|In torchvision\.$")
FIXTURE = ROOT / "crates/values/tests/kernels-2.11.txt"


def installed(expression):
    """What an expression over the installed torch is, without importing more than it takes."""
    code = f"import importlib.metadata, importlib.util, json; print(json.dumps({expression}))"
    return json.loads(subprocess.check_output([PYTHON, "-c", code], text=True))


def library(package, *parts):
    root = installed(f"(lambda it: it and it.origin)(importlib.util.find_spec({package!r}))")
    return Path(root).parent.joinpath(*parts) if root else None


def kernels(path):
    """The mangled names in a library's constants: those that it registers kernels by."""
    with path.open("rb") as file:
        header = file.read(64)
        (at,) = struct.unpack_from("<Q", header, 0x28)
        size, count, names = struct.unpack_from("<HHH", header, 0x3A)
        file.seek(at)
        table = file.read(size * count)
        sections = [struct.unpack_from("<IIQQQQ", table, size * i) for i in range(count)]
        file.seek(sections[names][4])
        texts = file.read(sections[names][5])
        for name, _, _, _, offset, length in sections:
            if texts[name:].startswith(b".rodata\0"):
                file.seek(offset)
                return set(re.findall(rb"(?<=\0)_Z[\x21-\x7e]{4,}(?=\0)", file.read(length)))
    raise AssertionError(f"{path} has no constants")


@pytest.fixture(scope="module")
def of_torch():
    return kernels(library("torch", "lib", "libtorch_cuda.so"))


def fragments():
    found = FRAGMENT.findall((ROOT / "crates/values/src/names.rs").read_text())
    assert 150 < len(found)
    return found


def number(text):
    return tuple(map(int, text.split(".")))


@functools.cache
def versions():
    """The release of torch that is installed, and of CUDA that it is built for."""
    torch = installed("importlib.metadata.version('torch')")
    built = library("torch", "version.py").read_text()
    return {"torch": number(torch.split("+")[0])[:2], "CUDA": number(re.search(r"^cuda.* = '([0-9.]+)'", built, re.M)[1])}


def is_there(remark):
    """Whether a fragment with that remark is in the libtorch_cuda.so that is installed."""
    if not remark:
        return True
    when, of, version = REMARK.match(remark).groups()
    if when is None:
        return False
    now, then = versions()[of], number(version)
    return {"Since": then <= now, "Until": now[: len(then)] <= then, "Before": now < then}[when]


def test_every_fragment_is_in_torch(of_torch):
    all_names = b"\n".join(of_torch)
    expected = [it for it in fragments() if is_there(it[2])]
    missing = [(name, text) for name, text, _ in expected if text.encode() not in all_names]
    assert not missing, missing


def test_a_fragment_that_torch_lacks_says_where_it_is(of_torch):
    all_names = b"\n".join(of_torch)
    remarked = {text: remark for _, text, remark in fragments() if remark}
    assert all(map(REMARK.match, remarked.values())), remarked
    # What is of releases may be part of other names in others.
    idle = [it for it, remark in remarked.items() if remark == "In torchvision." and it.encode() in all_names]
    assert not idle, f"these need no remark: {idle}"
    vision = library("torchvision", "_C.so")
    if vision and vision.exists():
        theirs = b"\n".join(kernels(vision))
        missing = [it for it, remark in remarked.items() if remark == "In torchvision." and it.encode() not in theirs]
        assert not missing, missing


def test_the_kernels_that_rust_tests_with_are_torch_s(of_torch):
    if not installed("importlib.metadata.version('torch')").startswith("2.11."):
        pytest.skip("they are those of torch 2.11")
    names = [it.split(" ")[1].encode() for it in FIXTURE.read_text().splitlines()]
    assert len(names) == len(set(names))
    assert not set(names) - of_torch
