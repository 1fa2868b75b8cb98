"""The package itself: what its import costs, its types, and what is installed."""

import re
import shutil
import subprocess
import sys

import pytest
from harness import PYTHON, ROOT

sys.path.insert(0, str(ROOT / "python"))

from plimsoll import Size  # noqa: E402


def test_the_import_is_of_the_standard_library_only(program):
    text = (
        "import sys; before = set(sys.modules); import plimsoll\n"
        "new = {it.split('.')[0] for it in set(sys.modules) - before} - set(sys.stdlib_module_names)\n"
        "print(sorted(new))\n"
    )
    assert program.start(PYTHON, "-c", text).stdout == "['plimsoll']\n"


def test_another_package_in_its_folder_is_named(tmp_path):
    shutil.copytree(ROOT / "python/plimsoll", tmp_path / "plimsoll")
    (tmp_path / "plimsoll_gpu-0.1.0.dist-info").mkdir()
    command = [sys.executable, "-c", "import plimsoll"]
    alone = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert alone.returncode == 0, alone.stderr
    (tmp_path / "plimsoll-0.0.1.dist-info").mkdir()
    both = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert both.returncode == 1 and "plimsoll-0.0.1), another project" in both.stderr, both.stderr


@pytest.mark.soak
def test_who_has_only_the_program_is_given_the_package(plimsoll):
    folder = plimsoll.folder / "packages"
    environment = plimsoll.cold()
    told = plimsoll.run("doctor", environment=environment).stdout
    install = re.search(r"  note  package  .* To install it: (\S+) -m pip install (\S+\.whl); then, .*: export (PLIMSOLL_BIN=\S+)\n", told)
    assert install, told
    python, wheel, program = install.groups()
    # As it is printed, but that the environment of the tests stays as it is.
    command = [python, "-m", "pip", "install", "--quiet", "--no-index", "--target", str(folder), wheel]
    installed = subprocess.run(command, capture_output=True, text=True)
    assert installed.returncode == 0, installed
    with_package = environment | {"PYTHONPATH": str(folder)} | dict([program.split("=")])
    assert "  ok    package  import plimsoll works (%s)" % (folder / "plimsoll") in plimsoll.run("doctor", environment=with_package).stdout
    asked = [python, "-c", "import plimsoll; print(plimsoll.__file__, plimsoll.version())"]
    ran = subprocess.run(asked, capture_output=True, text=True, env=with_package, cwd=plimsoll.folder)
    (about,) = folder.glob("plimsoll_gpu-*.dist-info")
    assert ran.stdout.split() == [str(folder / "plimsoll" / "__init__.py"), about.name.split("-")[1].removesuffix(".dist")], ran
    ours = {it.relative_to(ROOT / "python") for it in (ROOT / "python").rglob("*") if it.suffix in (".py", ".typed")}
    assert {it.relative_to(folder) for it in (folder / "plimsoll").rglob("*") if it.suffix in (".py", ".typed")} == ours


def test_types_are_strict_in_the_package_and_in_the_agent():
    ran = subprocess.run([sys.executable, "-m", "mypy", "--cache-dir=/dev/null"], cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout
    n_files = sum(1 for folder in ("python/plimsoll", "agent") for _ in (ROOT / folder).rglob("*.py"))
    assert ran.stdout == "Success: no issues found in %d source files\n" % n_files


def test_the_agent_the_package_and_the_tests_are_linted():
    command = [sys.executable, "-m", "ruff", "check", "--no-cache", "agent", "python", "tests"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize(
    "given, bytes, shown",
    [
        ("20GiB", 20 << 30, "20.00 GiB"),
        ("1.5g", 3 << 29, "1.50 GiB"),
        ("512 MiB", 512 << 20, "512.0 MiB"),
        ("20GB", 20 * 10**9, "18.63 GiB"),
        (1024, 1024, "1.0 KiB"),
        (3 << 40, 3 << 40, "3.00 TiB"),
        ("7", 7, "7 B"),
    ],
)
def test_sizes_are_numbers_of_bytes(given, bytes, shown):
    assert Size(given) == bytes and str(Size(given)) == shown


@pytest.mark.parametrize("given", ["", "GiB", "20 apples", "-1g", "1e9"])
def test_what_is_no_size_is_refused(given):
    with pytest.raises(ValueError, match="is no size; write it as in '20GiB'"):
        Size(given)


def test_what_fits_so_far_is_said_to():
    from plimsoll._notebook import _proposed

    plan = {"needs_bytes": 1 << 30, "remedies": ["checkpoint"]}
    answer = {"limit": {"bytes": 2 << 30}, "gpu": "Tesla T4", "as_it_is": {"needs_bytes": 3 << 30}, "outcome": "fits_so_far", "so_far": "no evaluation", "plans": [plan]}
    assert _proposed(answer)[1:] == ["fits so far with one of these plans:", "    1.00 GiB  checkpoint", "no evaluation"]
    without = _proposed(answer | {"plans": []})
    assert without == ["fits so far Tesla T4 (2.00 GiB) without changes: 3.00 GiB for what was run", "no evaluation"]


def test_what_is_tight_and_what_a_backward_pass_made_is_said_to():
    from plimsoll._results import prediction

    report = {"verdict": "fits", "gpu": "t4", "gpu_name": "Tesla T4", "gpu_total_bytes": 14 << 30, "peak_device_bytes": 13 << 30, "peak_allocated_bytes": 12 << 30, "peak_reserved_bytes": 12 << 30,
              "safe_bytes": 15 << 30, "steps_seen": 3, "steady": True, "categories": {}, "top_lines": [], "notes": [], "cards": [{"id": "t4", "carries": "tight"}, {"id": "a10g", "carries": "yes"}]}
    lines = [{"origin": origin, "file": "t.py", "line": 5, "function": "f", "bytes": 1 << 20, "category": "workspaces"} for origin in ("line", "backward")]
    answer = prediction(report | {"top_lines": lines}, [], "")
    assert [str(it).split(":")[1] for it in answer.lines] == ["5 workspaces", "5, backward workspaces"]
    assert answer.carried_by == ("a10g",)
    assert str(answer) == "fits Tesla T4 (14.00 GiB): needs 13.00 GiB, request 15.00 GiB to be safe: TIGHT, that is more than the card has"
    assert "TIGHT" not in str(prediction(report | {"safe_bytes": 14 << 30}, [], ""))
