"""Files of strangers: whatever is in one, a command that looks at it ends soon, takes bounded memory, executes nothing and says one thing or another."""

import os
import signal
import subprocess
import threading

import hostile
import pytest
from harness import binary, clean_environment

SECONDS = 20
MEMORY = 1 << 30


def looked_at(folder, words, **more):
    """(what is wrong, what was said): nothing is wrong if it ended well or with a sentence."""
    environment = clean_environment() | {"PLIMSOLL_CACHE": str(folder / "cache"), "HOME": str(folder), "NO_COLOR": "1"} | more
    process = subprocess.Popen(
        [binary(), *map(str, words)], cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    timer = threading.Timer(SECONDS, process.kill)
    timer.start()
    said = process.stdout.read().decode(errors="replace")
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = code = os.waitstatus_to_exitcode(status)
    timer.cancel()
    wrong = []
    if code == -signal.SIGKILL:
        wrong.append(f"took more than {SECONDS} s")
    elif code not in (0, 1, 2):
        wrong.append(f"ended with {code}")
    if "panicked" in said:
        wrong.append("panicked")
    if usage.ru_maxrss * 1024 > MEMORY:
        wrong.append(f"took {usage.ru_maxrss >> 10} MiB")
    return wrong, said


def failed(tmp_path, cases, **more):
    before = {"cache", "cards", "hostile", "out"}
    res = []
    for name, words in cases:
        wrong, said = looked_at(tmp_path, words, **more)
        new = set(os.listdir(tmp_path)) - before
        if new:
            wrong.append(f"left {new}")
        if wrong:
            res.append(f"{name}: {', '.join(wrong)}\n  {words[0]}: {said[-300:]}")
    return res


def some(sequence, one_of):
    return (it for index, it in enumerate(sequence) if index % one_of == 0)


@pytest.mark.parametrize("one_of", [pytest.param(29, id="some"), pytest.param(1, id="all", marks=pytest.mark.soak)])
def test_explain_of_what_a_stranger_sent(tmp_path, one_of):
    def cases():
        for name, make in some(hostile.all_of_them(), one_of):
            path = tmp_path / "hostile"
            path.write_bytes(make())
            yield name, ["explain", path]

    wrong = failed(tmp_path, cases())
    assert not wrong, f"{len(wrong)}\n" + "\n".join(wrong[:40])


COMMANDS = [
    ["replay", "{}", "--capacity", "1GiB"],
    ["diff", "{}", "{}"],
    ["explain", "--json", "-", "{}"],
    ["export", "--to", "flamegraph", "-o", "-", "{}"],
    ["export", "--to", "perfetto", "-o", "-", "{}"],
    ["export", "--to", "parquet", "-o", "out", "{}"],
    ["view", "--html", "-", "{}"],
]


@pytest.mark.parametrize("one_of", [pytest.param(149, id="some"), pytest.param(11, id="many", marks=pytest.mark.soak)])
def test_the_other_readers(tmp_path, one_of):
    def cases():
        for name, make in some(hostile.all_of_them(), one_of):
            path = tmp_path / "hostile"
            path.write_bytes(make())
            for words in COMMANDS:
                yield name, [it.format(path) for it in words]

    wrong = failed(tmp_path, cases())
    assert not wrong, f"{len(wrong)}\n" + "\n".join(wrong[:40])


def test_a_strangers_card(tmp_path):
    (tmp_path / "cards").mkdir()
    cards = list(hostile.write_a_card(tmp_path / "cards"))
    cases = [(path.name, ["predict", "--gpu", path, "--", "true"]) for path in cards]
    wrong = failed(tmp_path, [*cases, ("a folder of cards", ["cards"])], PLIMSOLL_CARDS=str(tmp_path / "cards"))
    assert not wrong, "\n".join(wrong)
