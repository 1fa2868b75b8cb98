"""What a person tries leaves their files as they were: some six hundred entries, with all that a file system keeps of them, before and after every way to
write that we know of, under each command and each way that writes are kept apart."""

import os
import subprocess
import tempfile

import operations
import place
import pytest
from harness import COLD, binary

ROOTS = os.geteuid() == 0
WAYS = [("mounts", None), ("user", place.NOBODY), ("traced", None), ("traced", place.NOBODY)] if ROOTS else [("user", None), ("traced", None)]
"""(how writes are kept apart, the user if it is not ours)."""

CALLS = """
import plimsoll, train
try:
    print(plimsoll.predict(train.everything, gpu="t4"))
except plimsoll.PlimsollError as error:
    print(error)
"""

TESTS = """
import train

def test_it(gpu_memory_budget):
    gpu_memory_budget("2GiB").predict(train.everything, gpu="t4")
"""

GOLDENS = """
version = 1
[scripts.train]
command = [{python!r}, "train.py"]
gpu = "t4"
"""

ELSEWHERE = {
    "temporary-files": "tmp/",
    "shared-memory": "/dev/shm/",
    "system-v": "System V",
    "message-queue": "a message queue",
    "control-group": "a control group",
    "out-of-the-project": "outside/far",
    "daemon": "process",
    "under-nohup": "process",
}
"""Operations that write in no folder of theirs."""


def words(command, python, plan):
    """As it is typed in the project's folder; a plan goes where it may."""
    script = ["--", python, "train.py"]
    return {
        "predict": [binary(), "predict", "--gpu", "t4", *script],
        "fit": [binary(), "fit", "--gpu", "t4", "--plan", plan, *script],
        "check": [binary(), "check"],
        "lint --confirm": [binary(), "lint", "--confirm", "--gpu", "t4", *script],
        "plimsoll.predict": [python, "use.py"],
        "the fixture": [python, "-m", "pytest", "-q", "-p", "plimsoll.pytest_plugin", "-p", "no:xdist", "-p", "no:cacheprovider", "-p", "no:benchmark", "test_it.py"],
    }[command]


COMMANDS = ["predict", "fit", "check", "lint --confirm", "plimsoll.predict", "the fixture"]


@pytest.fixture
def make_world():
    made = []

    def make(user=None):
        folder = tempfile.TemporaryDirectory(prefix="plimsoll-tests-")
        os.chmod(folder.name, 0o755)
        made.append((folder, place.World(folder.name, user)))
        return made[-1][1]

    yield make
    for folder, world in made:
        world.clear()
        folder.cleanup()


def python_for(user, command, torch):
    """One that this user may run and that has what the command needs."""
    python = place.pythons(user)
    if python is None:
        pytest.skip("no Python that this user may run")
    needs = ["torch"] * torch + ["pytest"] * (command == "the fixture")
    asked = subprocess.run([python, "-c", "".join(f"import {it};" for it in needs if it != "torch")], cwd="/", capture_output=True)
    if asked.returncode or (torch and python != COLD):
        pytest.skip(f"{python} has not all of {', '.join(needs)}")
    return python


END = ["plimsolls-own-files", "remove-the-caches", "remove-the-home"]
"""After these there is nothing left to train with."""


def tried(world, command, way, torch=False):
    """Runs the command in the world: what it says, what each operation says, and what is not as it was."""
    python = python_for(world.user, command, torch)
    files = {"use.py": CALLS, "test_it.py": TESTS, "plimsoll-check.toml": GOLDENS.format(python=python)}
    for name, text in files.items():
        (world.project / name).write_text(text)
    before = world.picture()
    without = END if torch else []
    with world.given(torch, without) as (environment, options):
        environment["PLIMSOLL_WRITES_WAY"] = way
        # What plimsoll unpacks is there, as after any run of it, and something that another run has kept.
        subprocess.run([binary(), "predict", "--", "true"], env=environment, stderr=subprocess.DEVNULL, **options)
        world.keep_something()
        ours = world.ours()
        ran = subprocess.run(words(command, python, str(world.answers / 'plan.toml')), env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=500, **options)
        if "cannot separate the script's writes" in ran.stdout:
            pytest.skip(ran.stdout)
        said = world.said()
        assert said.keys() == operations.OPERATIONS.keys() - set(without), (ran.stdout, said)
        changed = place.differences(before, world.picture()) + place.differences(ours, world.ours())[:5]
    changed += [f"{name}: {text}" for name, text in said.items() if text.startswith("TooFar")]
    changed += [f"{path} stays" for name in ("sessions", "layers") for path in (world.home / place.OURS).glob(f"**/{name}/*")]
    return ran, said, changed


def test_each_operation_would_be_seen(make_world):
    """Without plimsoll each changes something, and the picture shows it: this is a test of the tests."""
    world = make_world()
    before = world.picture()
    with world.given(without=END) as (environment, options):
        subprocess.run([place.pythons(None), "train.py"], env=environment, check=True, **options)
        said = world.said()
        seen = place.differences(before, world.picture())
    unseen = []
    for name, text in said.items():
        if text == "did it" and not any(it.startswith(ELSEWHERE.get(name, f"home/project/tried/{name}/")) for it in seen):
            unseen.append(name)
    assert not unseen, seen
    failed = {name: text for name, text in said.items() if text != "did it" and not text.startswith("absent")}
    # What a machine refuses to everybody: a second mount of the disk, other processes' descriptors, io_uring.
    assert len(failed) <= 8 and 60 < len(said), failed


def is_in_short(command, way):
    """In `make test` each command is tried in one way, and `predict` in each."""
    return way == WAYS[0] or command == "predict"


def cases(torch):
    for command in COMMANDS:
        for way, user in WAYS:
            marks = [] if is_in_short(command, (way, user)) and not torch else [pytest.mark.soak]
            yield pytest.param(command, way, user, id=f"{command}-{way}-{'nobody' if user else 'own'}", marks=marks)


def assert_nothing_changed(ran, said, changed):
    listed = "\n".join(f"  {name}: {text}" for name, text in said.items())
    assert not changed, "\n".join([*changed, "what was said:", ran.stdout, "how the operations went:", listed])


@pytest.mark.matrix(2)
@pytest.mark.parametrize("command,way,user", cases(torch=False))
def test_nothing_of_the_world_changes(make_world, command, way, user):
    assert_nothing_changed(*tried(make_world(user), command, way))


ANSWERS = {
    "predict": (0, "FITS"),
    "fit": (0, "FITS without changes"),
    "check": (2, "it was never measured"),
    "lint --confirm": (1, "PLM"),
    "plimsoll.predict": (0, "fits Tesla T4"),
    "the fixture": (0, "1 passed"),
}
"""The exit code of a training, and what is said."""


@pytest.mark.parametrize("command,way,user", cases(torch=True))
def test_nothing_changes_by_what_also_trains(make_world, command, way, user):
    ran, said, changed = tried(make_world(user), command, way, torch=True)
    code, answer = ANSWERS[command]
    assert (ran.returncode, answer in ran.stdout) == (code, True), ran.stdout
    assert_nothing_changed(ran, said, changed)
