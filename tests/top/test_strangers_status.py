"""Status files that somebody wrote by hand: `top` and `exporter` say what they can, nothing of them reaches a terminal as a command, and they make no more
series than a run has."""

import json
import os
import re
import subprocess
import time

import pytest
from harness import binary
from scene import GIB
from test_exporter import exporter, get

ESCAPES = "\x1b]0;title\x07\x1b[2J\x9b31m\u202eright\r\n# HELP evil\nevil 1\n\\\"{}"
NUMBERS = [-1, 0, 2**63, 2**64 - 1, 2**64, 1e308, -1e308, 1e400, None, "12", [], {}, True]
SERIES = re.compile(r'[a-z_]+(\{([a-z_]+="([^"\\\n]|\\["\\n])*",?)*\})? (-?[0-9.e+-]+|NaN|[+-]Inf)( [0-9]+)?')
TOO_FAR = 400
"""No run has so many series, with every device and category that a file may name."""


def statuses(it):
    """What to write over a good status, with a word for it."""
    device = it.counters(None, GIB, 2 * GIB)
    now = time.time()
    yield "escapes", {"label": ESCAPES, "command": [ESCAPES] * 3, "alarms": [{"code": ESCAPES, "step": 1, "text": ESCAPES}], "devices": [device | {"uuid": ESCAPES, "categories": {ESCAPES: 1}}]}
    yield "a long label", {"label": "x" * 900_000}
    yield "many words", {"command": ["x"] * 100_000}
    yield "many alarms", {"alarms": [{"code": f"code-{n}", "step": n, "text": "t"} for n in range(9000)]}
    yield "many devices", {"devices": [device | {"index": n, "uuid": f"GPU-{n}"} for n in range(2000)]}
    yield "many categories", {"devices": [device | {"categories": {f"category-{n}": n for n in range(20_000)}}]}
    yield "deep", {"more": json.loads("[" * 400 + "]" * 400)}
    for name in "step", "seconds_per_step", "updated", "expected_peak", "rank", "raises_alarms", "label", "devices", "alarms", "command", "format", "pid", "started":
        for value in NUMBERS:
            yield f"{name} = {value}", {name: value}
    for name in device:
        for value in NUMBERS:
            yield f"a device's {name} = {value}", {"devices": [device | {name: value}]}
    for seconds in 3600, 10 * 365 * 86400, 1e15, -1e15:
        yield f"written {seconds} s from now", {"updated": now + seconds}


def assert_plain(name, text):
    assert not [it for it in text if (ord(it) < 32 and it not in "\n\t") or 0x7F <= ord(it) < 0xA0 or it == "\u202e"], (name, text)


@pytest.mark.soak
@pytest.mark.parametrize("one_of", [pytest.param(7, id="some"), pytest.param(1, id="all", marks=pytest.mark.soak)])
def test_a_status_says_anything(machine, one_of):
    it = machine(0)
    pid, other = it.process({}), it.process({})
    it.status(other, devices=[it.counters(None, GIB, 2 * GIB)], label="honest")
    with exporter(it) as url:
        for number, (name, more) in enumerate(statuses(it)):
            if number % one_of and number > 7:
                continue
            path = it.status(pid)
            path.write_text(json.dumps(json.loads(path.read_text()) | more).replace("Infinity", "1e400"))
            for options in ["--once"], ["--once", "--sort", "end"], ["--json"]:
                ran = subprocess.run([binary(), "top", *options], env=it.environment(), capture_output=True, text=True, timeout=120)
                assert ran.returncode == 0 and "panicked" not in ran.stderr and "honest" in ran.stdout, (name, ran)
                assert_plain(name, ran.stdout)
            text = get(url)[2]
            series = [line for line in text.splitlines() if not line.startswith("#")]
            assert all(SERIES.fullmatch(line) for line in series), (name, [line for line in series if not SERIES.fullmatch(line)][:3])
            assert len(series) < TOO_FAR and len(text) < 1 << 20, (name, len(series))


def test_what_is_no_status_keeps_nobody_waiting_and_stays(machine):
    it = machine(0)
    it.status(it.process({}), label="honest")
    made = {name: it.process({}) for name in ("pipe", "link", "folder", "endless", "large", "another's")}
    path = {name: it.running / f"{pid}.json" for name, pid in made.items()}
    os.mkfifo(path["pipe"])
    path["link"].symlink_to("/etc/passwd")
    path["folder"].mkdir()
    path["endless"].symlink_to("/dev/zero")
    path["large"].write_bytes(b" " * (2 << 20))
    path["another's"].write_text(json.dumps({"format": 1, "pid": 1, "started": 0, "label": "another's"}))
    ran = subprocess.run([binary(), "top", "--once"], env=it.environment(), capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0 and "honest" in ran.stdout and "root:" not in ran.stdout and "another's" not in ran.stdout, ran
    assert all(os.path.lexists(it) for it in path.values())


def test_a_file_from_the_future_is_no_reason_to_remove_it(machine):
    """Clocks jump: a file that is older than now can tell is not what a process left behind an hour ago."""
    it = machine(0)
    it.status(it.process({}), label="honest")
    gone = it.process({})
    path = it.status(gone)
    it.processes[-1].kill()
    it.processes[-1].wait()
    os.utime(path, (time.time() + 1e7,) * 2)
    for stays in True, False:
        ran = subprocess.run([binary(), "top", "--once"], env=it.environment(), capture_output=True, text=True, timeout=120)
        assert ran.returncode == 0 and "honest" in ran.stdout and path.exists() == stays, ran
        if stays:
            os.utime(path, (0, 0))
