"""The agent enters a process, or stays out of it."""

import os
import re
import struct
import subprocess
from pathlib import Path

import pytest
from harness import PYTHON
from plimsoll_agent import torch_builds


def fake_torch(launcher, version, cuda):
    """A torch that must not be executed."""
    launcher.file("fake/torch/__init__.py", "raise RuntimeError('torch was executed')\n")
    launcher.file(
        "fake/torch/version.py",
        "from typing import Optional\n__version__ = %r\ndebug = False\ncuda: Optional[str] = %r\n" % (version, cuda),
    )
    return {"PYTHONPATH": os.path.join(str(launcher.folder), "fake")}


def without_torch(launcher):
    """A Python that has nothing but its standard library."""
    folder = os.path.join(str(launcher.folder), "empty")
    subprocess.run([PYTHON, "-m", "venv", "--without-pip", folder], check=True)
    return os.path.join(folder, "bin", "python")


def test_a_program_without_torch_is_left_alone(bare):
    run = bare("import sys, json; print('plimsoll_agent.agent' in sys.modules)")
    assert (run.returncode, run.stdout, run.stderr, run.processes) == (0, "False\n", "", [])


def test_looking_for_torch_is_not_importing_it(bare):
    env = fake_torch(bare, "2.6.0", None)
    run = bare("import importlib.util as u; print(u.find_spec('torch').name)", env=env)
    assert (run.returncode, run.stdout, run.processes) == (0, "torch\n", [])


def test_the_users_sitecustomize_runs_and_is_the_one_seen(bare):
    theirs = bare.file("theirs/sitecustomize.py", "print('theirs'); mark = 1\n")
    env = {"PYTHONPATH": os.path.dirname(theirs)}
    run = bare("import sitecustomize; print(sitecustomize.mark, sitecustomize.__file__)", env=env)
    assert run.stdout == "theirs\n1 %s\n" % theirs
    assert run.stderr == ""


def test_a_broken_sitecustomize_is_reported_as_python_does(bare):
    theirs = bare.file("theirs/sitecustomize.py", "raise ValueError('broken')\n")
    run = bare("print('ran')", env={"PYTHONPATH": os.path.dirname(theirs)})
    without = bare("print('ran')", env={"PYTHONPATH": os.path.dirname(theirs)}, agent=False)
    assert (run.returncode, run.stdout, run.stderr) == (0, without.stdout, without.stderr)
    assert "ValueError: broken" in run.stderr


def test_without_a_session_nothing_happens(bare):
    run = bare("import sys; print([m for m in sys.modules if 'plimsoll' in m])", agent=False, env={"PYTHONPATH": bare.unpacked.agent})
    assert run.stdout == "[]\n"


@pytest.mark.parametrize(
    "version, cuda, reason, says",
    [
        ("2.11.0+cpu", None, "no-cuda-build", "built without CUDA"),
        ("2.5.1+cu124", "12.4", "version", "2.5.1+cu124 (CUDA 12.4), which is older than"),
        ("3.0.0.dev20270101+cu140", "14.0", "cuda-version", "the layout of that CUDA's structures"),
        ("2.7.1+cu118", "11.8", "cuda-version", "(CUDA 11.8)"),
        ("unknown", "12.8", "version", "unknown (CUDA 12.8)"),
    ],
)
def test_an_unsupported_torch_is_refused_before_it_runs(bare, version, cuda, reason, says):
    run = bare("import torch\nprint('not reached')", env=fake_torch(bare, version, cuda))
    assert (run.returncode, run.stdout, run.stderr) == (86, "", "")
    line = run.process.one("unsupported")
    assert (line["reason"], line["torch"], line["cuda"]) == (reason, version, cuda)
    assert says in line["text"] and "pip install" in line["text"]


THREE_STEPS = """
import torch
model = torch.nn.Linear(1024, 1024).cuda()
optimizer = torch.optim.Adam(model.parameters())
for _ in range(3):
    model(torch.randn(8, 1024, device="cuda")).sum().backward()
    optimizer.step()
print(torch.__version__)
"""


@pytest.mark.soak
def test_a_release_that_nobody_has_seen_runs(plimsoll):
    """The installed torch under a number that no release has yet, all its other files as they are."""
    find = "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
    found = Path(subprocess.run([PYTHON, "-c", find], stdout=subprocess.PIPE, text=True, check=True).stdout.strip())
    made = plimsoll.folder / "made" / "torch"
    made.mkdir(parents=True)
    for it in found.iterdir():
        (made / it.name).symlink_to(it)
    (made / "version.py").unlink()
    text, seen = re.subn(r"2\.\d+\.\d+", "2.97.0", (found / "version.py").read_text())
    assert seen, text
    (made / "version.py").write_text(text)
    plimsoll.script(THREE_STEPS)
    ran = plimsoll.predict("train.py", options=["--gpu", "h200", "--until-exit"], environment=plimsoll.cold(PYTHONPATH=str(made.parent)))
    assert ran.code == 0 and ran.stdout.startswith("2.97.0+"), ran
    (note,) = (it["text"] for it in ran.report["notes"] if it["code"] == "torch-version")
    assert note.startswith("PyTorch 2.97.0 for CUDA") and "is untested with plimsoll" in note, note
    assert "mismatches" not in {it["code"] for it in ran.report["notes"]}, "every event is explained"


def torch_in(folder, version_file, runtime=None):
    """The `__init__.py` of a torch of which only that much is there; `runtime` is what its library links."""
    os.makedirs(os.path.join(str(folder), "lib"))
    with open(os.path.join(str(folder), "version.py"), "w", encoding="utf-8") as file:
        file.write(version_file)
    if runtime is not None:
        with open(os.path.join(str(folder), "lib", "libc10_cuda.so"), "wb") as file:
            file.write(b"\x7fELF\0libc.so.6\0" + runtime + b"\0cudaMalloc\0")
    return os.path.join(str(folder), "__init__.py")


@pytest.mark.parametrize(
    "version, runtime, standing, says",
    [
        ("2.11.0+cu130", b"libcudart.so.13", "supported", "compared with GPUs"),
        ("2.11.1+cu130", None, "supported", "compared with GPUs"),
        ("2.9.1+cu128", b"libcudart.so.12", "experimental", "PyTorch 2.9.1 for CUDA 12.8 have not been compared with a GPU"),
        ("2.10.0+cu128", b"libcudart.so.12", "supported", "compared with GPUs"),
        ("2.9.1+cu128", b"libcudart.so.12", "experimental", "does not record which module"),
        ("2.6.0+cu124", b"libcudart.so.12", "experimental", "not been compared with a GPU"),
        # conda's, whose version has no more to it.
        ("2.7.1", b"libcudart.so.12", "experimental", "2.7.1 for CUDA 12.6"),
        ("2.11.0+cu126", b"libcudart.so.12", "unknown", "PyTorch 2.11.0 for CUDA 12.6 is untested with plimsoll, other builds"),
        ("2.9.1+cu130", b"libcudart.so.13", "unknown", "PyTorch 2.9.1 for CUDA 13.0 is untested with plimsoll"),
        ("2.80.0+cu130", b"libcudart.so.13", "unknown", "the phantom has every CUDA function that it calls"),
        ("2.11.0a0+git1234567", b"libcudart.so.12", "unknown", "2.11.0a0+git1234567 is not a release"),
        ("2.10.0.dev20251101+cu128", b"libcudart.so.12", "unknown", "not a release"),
        ("2.11.0a0+git1234567", b"libcublas.so.13", "unsupported", "CAFFE2_STATIC_LINK_CUDA"),
        ("2.5.1", b"libcudart.so.12", "unsupported", "older than"),
        ("2.7.0+cu118", b"libcudart-d0da41ae.so.11.0", "unsupported", "CUDA 11.8"),
        ("2.6.0+rocm6.2.4", None, "unsupported", "built for AMD's ROCm 6.2.4"),
        ("2.11.0+cpu", None, "unsupported", "built without CUDA"),
    ],
)
def test_the_standing_of_a_build(tmp_path, version, runtime, standing, says):
    cuda = {"2.7.1": "12.6", "2.11.0a0+git1234567": "12.8", "2.5.1": "12.4"}.get(version)
    tag = version.partition("+cu")[2]
    cuda = "%s.%s" % (tag[:2], tag[2:]) if tag else cuda
    hip = version.partition("+rocm")[2] or None
    lines = "__version__ = %r\ncuda: Optional[str] = %r\nhip: Optional[str] = %r\n" % (version, cuda, hip)
    found = torch_builds.verdict(torch_in(tmp_path / "torch", lines, runtime))
    assert found[0] == standing and says in found[1], found


def wants(path, *names):
    """A library that wants these functions: as an ELF file has it, and no more."""
    texts = b"\0" + b"".join(it.encode() + b"\0" for it in names)
    places = [texts.index(b"\0" + it.encode() + b"\0") + 1 for it in names]
    symbols = bytes(24) + b"".join(struct.pack("<IBBHQQ", it, 0x12, 0, 0, 0, 0) for it in places)
    header = struct.pack("<6s10xHHIQQQIHHHHHH", b"\x7fELF\x02\x01", 3, 62, 1, 0, 0, 64, 0, 64, 0, 0, 64, 3, 0)
    at = 64 + 3 * 64
    table = bytes(64) + struct.pack("<IIQQQQIIQQ", 0, 11, 0, 0, at, len(symbols), 2, 1, 8, 24)
    table += struct.pack("<IIQQQQIIQQ", 0, 3, 0, 0, at + len(symbols), len(texts), 0, 0, 1, 0)
    with open(path, "wb") as file:
        file.write(header + table + symbols + texts)


THREE_STEPS = """
import torch
model = torch.nn.Linear(1024, 1024).cuda()
optimizer = torch.optim.Adam(model.parameters())
for _ in range(3):
    model(torch.randn(8, 1024, device="cuda")).sum().backward()
    optimizer.step()
print(torch.__version__)
"""


def test_a_release_that_nobody_has_seen_runs_if_all_that_it_asks_for_is_answered(bare):
    env = fake_torch(bare, "2.80.0+cu130", "13.0")
    library = os.path.join(env["PYTHONPATH"], "torch", "lib", "libtorch_cuda.so")
    os.makedirs(os.path.dirname(library))
    wants(library, "cudaMalloc", "cublasGemmEx", "cufoo", "cuFileRead", "_Z4cudaX")
    run = bare("import torch", env=env)
    assert "torch was executed" in run.stderr and not run.processes
    wants(library, "cudaMalloc", "cudaMallocOnTheMoon", "cudssCreate", "nvmlX")
    run = bare("import torch", env=env)
    assert (run.returncode, run.stderr) == (86, "")
    line = run.process.one("unsupported")
    assert line["reason"] == "entry-points"
    assert "the phantom lacks 3 of the CUDA functions that it calls: cudaMallocOnTheMoon, cudssCreate, nvmlX;" in line["text"]


def test_a_folder_with_the_name_of_torch_is_no_torch(tmp_path):
    assert torch_builds.verdict(str(tmp_path / "torch" / "__init__.py"))[0] == "unsupported"
    assert torch_builds.verdict(None)[0] == "unsupported"


def test_other_platforms_are_refused():
    build = torch_builds.Build("2.11.1+cu130", "13.0")
    assert torch_builds.objection(build, "darwin", "arm64")[0] == "not-linux"
    assert torch_builds.objection(build, "win32", "AMD64")[0] == "not-linux"
    assert torch_builds.objection(build, "linux", "aarch64")[0] == "not-x86-64"
    assert torch_builds.objection(build, "linux", "x86_64", has_glibc=False)[0] == "no-glibc"
    assert torch_builds.objection(build, "linux", "x86_64") is None
    assert torch_builds.remark(build) is None
    assert "without the global interpreter lock" in torch_builds.remark(build, has_lock=False)


def test_a_python_without_torch_leaves_its_error(bare):
    script = bare.file("no_torch.py", "import torch\n")
    run = bare.command([without_torch(bare), script])
    assert "ModuleNotFoundError" in run.stderr
    assert run.process.one("begin")["torch"] is None
    assert run.process.end["why"] == "exception"
    assert run.process.end["exception"]["type"] == "ModuleNotFoundError"
    assert run.process.end["exception"]["user_frame"]["text"] == "import torch"


def test_a_missing_torch_that_the_program_can_do_without_leaves_nothing(bare):
    script = bare.file("optional.py", "try:\n    import torch\nexcept ImportError:\n    print('without')\n")
    run = bare.command([without_torch(bare), script])
    assert (run.returncode, run.stdout, run.processes) == (0, "without\n", [])
