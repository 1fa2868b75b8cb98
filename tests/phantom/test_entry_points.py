"""What the installed torch imports from CUDA's libraries, and whether the phantom has an answer.

A new torch fails here first, with the names that are to be added to crates/phantom/entry_points.txt.
"""

import ctypes
import re
import subprocess
from pathlib import Path

import pytest
from harness import PYTHON, ROOT

ANSWERS = {"imitated", "computes", "handle", "refused", "real", "absent"}
# By the names of their functions; the longer prefix first.
LIBRARIES = {
    "cublasLt": r"cublasLt[A-Z]",
    "cublas": r"cublas[A-Z]",
    "cudnn": r"cudnn[A-Z]",
    "cusolver": r"cusolver[A-Z]",
    "cusparse": r"cusparse(?!Lt)[A-Z]",
    "cufft": r"cufft[A-Z]",
    "curand": r"curand[A-Z]",
    "nccl": r"nccl[A-Z]",
    "nvml": r"nvml[A-Z]",
    "cudart": r"(__)?cuda[A-Z]",
    "driver": r"cu(?!File|sparseLt)[A-Z]",
}
# Libraries that stay the real ones: they compile, trace, talk to files or to other GPUs, and reach a device
# only through functions of the libraries above.
LEFT_ALONE = r"cuFile|cupti|cusparseLt|nvrtc|nvshmem|nvJitLink"


@pytest.fixture(scope="module")
def folder():
    where = "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
    return Path(subprocess.run([PYTHON, "-c", where], capture_output=True, text=True, check=True).stdout.strip(), "lib")


@pytest.fixture(scope="module")
def table():
    res = {}
    for line in (ROOT / "crates/phantom/entry_points.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            library, name, answer = line.split()
            assert answer in ANSWERS, line
            res[name] = (library, answer)
    return res


def imports(folder):
    """Undefined names of torch's libraries, without those that another of them defines."""
    wanted, defined = set(), set()
    for library in sorted(folder.glob("*.so")):
        listing = subprocess.run(["nm", "-D", library], capture_output=True, text=True, check=True).stdout
        for line in listing.splitlines():
            *_, kind, name = line.split()
            (wanted if kind in "Uw" else defined).add(name.split("@")[0])
    return wanted - defined


def library_of(name):
    return next((it for it, pattern in LIBRARIES.items() if re.match(pattern, name)), None)


def test_every_function_that_torch_imports_is_in_the_table(folder, table):
    wanted = {name: library_of(name) for name in imports(folder)}
    missing = sorted(f"{library} {name}" for name, library in wanted.items() if library and name not in table)
    assert not missing, "add these to crates/phantom/entry_points.txt:\n" + "\n".join(missing)

    def of(library):
        return sum(it == library for it in wanted.values())

    # That the patterns still find them.
    assert 60 < of("cudart") and 150 < of("cublas") and 5 < of("cublasLt") and 50 < of("cudnn") and 100 < of("cusolver")


def test_every_library_that_torch_imports_is_known(folder):
    """A library with a new name would not be seen by the test above."""
    unknown = {
        name
        for name in imports(folder)
        if re.match(r"(cu|nv|nccl)[A-Za-z]*[A-Z]", name) and not library_of(name) and not re.match(LEFT_ALONE, name)
    }
    assert not unknown


# Families of the driver; a bare `cu[A-Z]` would find other libraries' words in a text.
DRIVER = "cu(?:Ctx|Mem|Device|Module|Launch|Func|Stream|Link|Library|Kernel|Occupancy)[A-Z][A-Za-z0-9_]+"


def names_in(path, pattern):
    """Names that a library has as text: what it asks for by name."""
    return {it.decode() for it in re.findall(rb"(?<=\0)(?:%b)(?=\0)" % pattern.encode(), path.read_bytes())}


def test_functions_that_torch_asks_for_by_name_exist(folder, table, unpack):
    """`c10/cuda/driver_api.cpp` lists them."""
    asked = names_in(folder / "libc10_cuda.so", r"nvml[A-Z][A-Za-z0-9_]+|cu[A-Z][A-Za-z0-9_]+")
    asked |= names_in(folder / "libtorch_cuda.so", "nvml[A-Z][A-Za-z0-9_]+|" + DRIVER)
    assert {"cuMemCreate", "cuMemMap", "nvmlInit_v2", "nvmlDeviceGetHandleByPciBusId_v2"} <= asked
    library = ctypes.CDLL(unpack("--gpu", "h200").preload.split(":")[0])
    missing = [it for it in sorted(asked) if not hasattr(library, it) and table.get(it) != ("nvml", "absent")]
    assert not missing


def test_the_agent_finds_the_same(folder, unpack):
    """It looks at a torch that nobody has tried, before that is loaded."""
    agent = Path(unpack("--gpu", "h200").agent)
    code = f"import sys; sys.path.insert(0, {str(agent)!r}); from plimsoll_agent import imports; print(imports.unanswered({str(folder)!r}))"
    assert subprocess.check_output([PYTHON, "-c", code], text=True) == "[]\n"


def test_the_libraries_that_cudnn_s_compiler_asks_for_are_the_phantom(folder, table):
    """cuDNN looks the driver up by name, too: every name must be there, or NVRTC's linker crashes."""
    cudnn = folder.parent.parent / "nvidia" / "cudnn" / "lib"
    asked = set()
    for name in ("libcudnn_graph.so.9", "libcudnn_engines_runtime_compiled.so.9"):
        asked |= names_in(cudnn / name, DRIVER)
    missing = sorted(it for it in asked if it not in table)
    assert asked and not missing
