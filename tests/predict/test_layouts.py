"""Which of the layouts of a job fit: one prediction for each, and the script's own reason where it cannot work."""

import json
import os
import shutil
import signal
import time
from importlib.util import find_spec
from pathlib import Path

import pytest
from described import assert_described
from harness import COLD as PYTHON
from harness import ROOT

SPLIT = Path(__file__).parent / "scripts" / "split.py"


def layouts(plimsoll, *options, command=(PYTHON, "split.py", "--dp", "{dp}", "--tp", "{tp}", "--mbs", "{mbs}")):
    shutil.copy(SPLIT, plimsoll.folder)
    return plimsoll.run("layouts", *options, "--json", "layouts.json", "--", *command)


@pytest.mark.soak
def test_each_layout_fits_or_does_not_or_cannot_work(plimsoll):
    """Of four GPUs; a fourth of the heads is no head, and 64 samples of 4,096 tokens are too many for each."""
    ran = layouts(plimsoll, "--gpu", "rtx3060-12g", "--gpus", "4", "--values", "mbs=1,64", "--where", "tp*mbs<=128")
    assert ran.code == 0, ran
    report = json.loads((plimsoll.folder / "layouts.json").read_text())
    rows = {tuple(int(it["values"][name]) for name in ("dp", "tp", "mbs")): it for it in report["layouts"]}
    verdicts = {key: it["verdict"] for key, it in rows.items()}
    assert verdicts == {
        (4, 1, 1): "fits",
        (2, 2, 1): "fits",
        (1, 4, 1): "could_not_tell",
        (4, 1, 64): "does_not_fit",
        (2, 2, 64): "does_not_fit",
    }
    assert "6 heads cannot be split by tp=4" in rows[1, 4, 1]["reason"], rows[1, 4, 1]
    # Less communication is before more.
    assert [rows[key]["order"] for key in ((4, 1, 1), (2, 2, 1))] == [1, 2]
    most = report["gpu_total_bytes"]
    assert all(it["needs_bytes"] <= it["safe_bytes"] < most for it in rows.values() if it["verdict"] == "fits"), rows
    assert rows[4, 1, 64]["needs_bytes"] > most, rows[4, 1, 64]
    assert "2 FIT" in ran.stdout and "4 x rtx3060-12g" in ran.stdout, ran
    # The same as the prediction of that layout alone.
    alone = plimsoll.predict(PYTHON, "split.py", "--dp", "2", "--tp", "2", options=("--gpu", "rtx3060-12g", "--world-size", "4"))
    assert alone.report["peak_device_bytes"] == rows[2, 2, 1]["needs_bytes"], alone
    assert_described("layouts", report)


@pytest.mark.parametrize(
    "options, says",
    [
        (("--where", "tp*ep<=8"), "`ep` has no value in the command"),
        (("--where", "tp>64"), "no layout of 4 GPUs satisfies every --where"),
        (("--values", "pp=1,2"), "the command has no {pp}"),
        (("--at-most", "2"), "12 layouts are possible, and --at-most is 2"),
    ],
)
def test_what_cannot_be_tried_is_refused_before_anything_runs(plimsoll, options, says):
    ran = layouts(plimsoll, "--gpu", "t4", "--gpus", "4", *options)
    assert ran.code == 2 and says in ran.stderr, ran
    assert not (plimsoll.folder / "layouts.json").exists()


def running(words):
    """The processes whose command has these words."""
    found = []
    for it in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if words in it.read_bytes().replace(b"\0", b" ").decode(errors="replace"):
                found.append(int(it.parent.name))
        except OSError:
            continue
    return found


def name_of(pid):
    """What the kernel calls it; nothing of one that has ended."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


@pytest.mark.parametrize("to_group", [True, False])
def test_who_asks_to_stop_gets_what_is_known(plimsoll, to_group):
    """The first layout has its answer, the second one sleeps and heeds no request, and the third has not begun."""
    length = f"{600 + os.getpid() / 1e7:.7f}"
    script = f"trap '' INT TERM; if [ $0 = 2 ]; then sleep {length}; fi; exit 3"
    command = ("layouts", "--gpu", "t4", "--gpus", "4", "-j", "1", "--json", "layouts.json", "--", "sh", "-c", script, "{tp}")
    process = plimsoll.start(*command, start_new_session=True)
    end = time.monotonic() + 60
    while not any(name_of(it) == "sleep" for it in running(length)):
        assert time.monotonic() < end and process.poll() is None
        time.sleep(0.05)
    # Who kills us now has this.
    so_far = json.loads((plimsoll.folder / "layouts.json").read_text())
    assert [it["values"] for it in so_far["layouts"]] == [{"tp": "1"}] and so_far["not_run"] == 2, so_far
    asked = time.monotonic()
    if to_group:
        os.killpg(process.pid, signal.SIGINT)
    else:
        process.send_signal(signal.SIGTERM)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 2, stderr
    assert time.monotonic() - asked < 6, stderr  # Python and the runs alone would take 12 s to give up on it.
    assert "plimsoll: tp=1: cannot work: the command exited with code 3" in stderr, stderr
    assert "0 FIT of 3 layouts on 4 x t4" in stdout and "plimsoll was interrupted, and 2 did not run" in stdout, stdout
    report = json.loads((plimsoll.folder / "layouts.json").read_text())
    assert [it["values"] for it in report["layouts"]] == [{"tp": "1"}] and report["not_run"] == 2, report
    assert_described("layouts", report)
    assert running(length) == []
    plimsoll.assert_nothing_left()


def test_each_run_goes_through_the_runner(plimsoll):
    """One that writes down what it is to start; what cannot start says so."""
    script = plimsoll.folder / "elsewhere"
    script.write_text('#!/bin/sh\nshift\necho "$@" >> begun\nexec "$@"\n')
    script.chmod(0o755)
    command = (PYTHON, "-c", "raise SystemExit('none of {tp}')")
    ran = layouts(plimsoll, "--gpu", "t4", "--gpus", "2", "--runner", f"{script} -n1", command=command)
    assert ran.code == 2 and "none of 1" in ran.stdout + ran.stderr, ran
    begun = (plimsoll.folder / "begun").read_text().splitlines()
    assert len(begun) == 2 and all(" predict --gpu t4 " in it for it in begun), begun
    ran = layouts(plimsoll, "--gpu", "t4", "--gpus", "2", "--runner", "/nowhere/srun", command=command)
    assert ran.code == 2 and "cannot run --runner /nowhere/srun" in ran.stderr, ran


def test_a_card_may_be_described_by_a_file(plimsoll):
    """Its name is in no catalogue."""
    (plimsoll.folder / "own.toml").write_text('like = "t4"\nid = "own"\nname = "Own"\n')
    ran = layouts(plimsoll, "--gpu", "./own.toml", "--gpus", "2", command=("sh", "-c", "echo no device >&2; exit 3", "{tp}"))
    rows = json.loads((plimsoll.folder / "layouts.json").read_text())["layouts"]
    assert all("--gpu ./own.toml" in it["command"] and "no device" in it["reason"] for it in rows), (ran, rows)


@pytest.mark.parametrize("words", ["--nproc-per-node 2", "--nproc-per-node gpu"])
def test_a_launcher_starts_as_many_processes_as_the_job_has_gpus(plimsoll, words):
    """Who says no number gets a process for each GPU; who says another one reads what to say."""
    (plimsoll.folder / "train.py").write_text("import torch\ntorch.ones(1, device='cuda')\n")
    launcher = (PYTHON, "-m", "torch.distributed.run", *words.split(" "), "train.py", "{mbs}")
    ran = layouts(plimsoll, "--gpu", "t4", "--gpus", "4", "--values", "mbs=1", command=launcher)
    (row,) = json.loads((plimsoll.folder / "layouts.json").read_text())["layouts"]
    told = "the command starts 2 processes, and the job has 4 GPUs: torchrun --nnodes {nodes}"
    assert (told in (row["reason"] or "")) == ("2" in words), (ran, row)


@pytest.mark.soak
@pytest.mark.parametrize(
    "words",
    [
        "plain.py --kind ddp --mbs 1 --length 64 --layers 1 --width 128 --words 100 --steps 2",
        "mega.py --tp 2 --layers 1 --steps 2",
        "split.py --dp 2 --layers 1 --bs 1 --length 64 --steps 2",
        "slow.py --model convnext --bs 2 --steps 2",
        "hugging.py --mbs 1 --micro 1 --seq 64 --layers 1 --steps 2",
        "large.py --tp 2 --layers 1 --seq 256 --steps 2",
        *(["zero.py --mbs 1 --seq 64 --layers 1 --steps 2"] if find_spec("deepspeed") else []),
    ],
)
def test_the_programs_that_are_measured_on_gpus_still_run(plimsoll, words):
    """And a limit that is too small for any of them holds."""
    program, *words = words.split()
    for limit, code in (("0", 0), ("4", 1)):
        options = ("--gpu", "h200", "--world-size", "2")
        ran = plimsoll.predict(PYTHON, ROOT / "bench/programs/layouts" / program, *words, "--limit", limit, options=options)
        assert ran.code == code, ran
