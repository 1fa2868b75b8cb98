"""The file by which others see a run: it replaces and removes its own kind, and nothing that merely has its name."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

AGENT = Path(__file__).parents[2] / "agent"
WRITES = """
import os
from plimsoll_agent.watch.status import Status
pid, folder = os.getpid(), os.environ["PLIMSOLL_RUNNING"]
for name, text in eval(os.environ["THERE"]).items():
    with open(os.path.join(folder, name % pid), "w") as file:
        file.write(text)
status = Status("night")
status.write(step=1)
seen = {it: open(os.path.join(folder, it)).read() for it in sorted(os.listdir(folder))}
status.remove()
print(repr((seen, {it: open(os.path.join(folder, it)).read() for it in sorted(os.listdir(folder))}, pid)))
"""
OLD = '{"format": 1, "pid": 7, "started": 1}'


@pytest.mark.parametrize(
    "there, is_written",
    [
        ({}, True),
        ({"%d.json": OLD}, True),
        ({"%d.json": OLD, "%d.json.part": OLD[:30], "notes.txt%.0s": "mine"}, True),
        ({"%d.json.part": ""}, True),
        ({"%d.json": '{"year": "what I measured"}'}, False),
        ({"%d.json": ""}, False),
        ({"%d.json.part": "half of a download"}, False),
    ],
)
def test_a_file_that_is_no_status_is_left_alone(tmp_path, there, is_written):
    environment = os.environ | {"PYTHONPATH": str(AGENT), "PLIMSOLL_RUNNING": str(tmp_path), "THERE": repr(there)}
    os.chmod(tmp_path, 0o700)
    done = subprocess.run([sys.executable, "-S", "-c", WRITES], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    seen, left, pid = eval(done.stdout)
    theirs = {name % pid: text for name, text in there.items()}
    if is_written:
        assert json.loads(seen.pop(f"{pid}.json"))["step"] == 1
        assert left == seen == {name: text for name, text in theirs.items() if name == "notes.txt"}
    else:
        assert seen == left == theirs
