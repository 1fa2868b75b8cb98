"""A machine for `top` and `exporter`: phantom GPUs that answer NVML, processes that hold memory on them, and status files of some.

By hand: `python tests/top/scene.py 8 40 COMMAND...` runs the command on a machine with 8 GPUs and 40 processes.
"""

import json
import os
import struct
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness import Unpacked

GIB = 1 << 30
# crates/phantom/src/machine/neighbours.rs: a word for the seats taken, one for each device; then the seats, who and how much on each device.
DEVICES, SEATS = 64, 1024
SEAT = HEAD = 1 + DEVICES


def started(pid):
    """When the process started: field 22 of its line in /proc."""
    stat = Path(f"/proc/{pid}/stat").read_text()
    return int(stat.rpartition(")")[2].split()[19])


class Machine:
    """Its GPUs are of the phantom, its processes only sleep; what they hold stands in the phantom's table."""

    def __init__(self, folder, cache, gpus=1, card="h100-80g"):
        self.session = Path(folder, "session")
        self.running = Path(folder, "running")
        self.running.mkdir(mode=0o700)
        self.processes = []
        self.held = {}
        self._environment = os.environ | {"PLIMSOLL_RUNNING": str(self.running)}
        if gpus:
            unpacked = Unpacked.ask(cache, ("--gpu", card, "--gpus", str(gpus)))
            environment = unpacked.environment(self.session)
            self._environment = {**environment, "PLIMSOLL_RUNNING": str(self.running), "PLIMSOLL_CACHE": str(cache)}
            # NVML alone is asked.
            del self._environment["LD_PRELOAD"]
            self._table()

    def environment(self, **more):
        return dict(self._environment, **more)

    def process(self, held):
        """A process that holds so many bytes of each device: {device: bytes}."""
        child = subprocess.Popen(["sleep", "600"], stdin=subprocess.DEVNULL)
        self.processes.append(child)
        self.held[child.pid] = held
        if self.session.exists():
            self._table()
        return child.pid

    def status(self, pid, **more):
        """What a watched process says of itself."""
        it = {"format": 1, "pid": pid, "started": started(pid), "label": "train.py", "command": ["python", "train.py"], "rank": None,
              "updated": time.time(), "step": 120, "seconds_per_step": 0.21, "devices": [], "expected_peak": None, "alarms": []}
        path = self.running / f"{pid}.json"
        path.write_text(json.dumps(it | more))
        return path

    @staticmethod
    def counters(uuid, allocated, reserved, **more):
        return {"uuid": uuid, "index": 0, "total": 80 * GIB, "allocated": allocated, "reserved": reserved, "active": allocated,
                "inactive_split": reserved - allocated, "peak_allocated": allocated, "peak_reserved": reserved, "retries": 0, "ooms": 0,
                "largest_free": None, "growth_per_step": 0, "categories": {}} | more

    def end(self):
        for child in self.processes:
            child.kill()
            child.wait()

    def _table(self):
        words = [0] * (HEAD + SEATS * SEAT)
        words[0] = len(self.held)
        for number, (pid, held) in enumerate(self.held.items()):
            at = HEAD + number * SEAT
            words[at] = pid | (started(pid) & 0xFFFFFFFF) << 32
            for device, size in held.items():
                words[at + 1 + device] = size
        (self.session / "devices.table").write_bytes(struct.pack(f"<{len(words)}Q", *words))

    def uuids(self, binary):
        told = subprocess.check_output([binary, "top", "--json"], env=self.environment())
        return [it["uuid"] for it in json.loads(told)["devices"]]


def busy(machine, binary, gpus, processes):
    """Every second process is watched; some grow, one has an alarm."""
    uuids = machine.uuids(binary) if gpus else []
    for i in range(processes):
        gpu = i % gpus if gpus else 0
        size = (1 + i % 5) * GIB * gpus // max(processes // 4, 1)
        pid = machine.process({gpu: size})
        if i % 2 == 0:
            growth = [0, 3 << 20, None, 200 << 20][i // 2 % 4]
            allocated = size * 8 // 10
            categories = {"parameters": allocated // 4, "gradients": allocated // 4, "optimizer": allocated // 3, "other": allocated // 6}
            counters = machine.counters(uuids[gpu] if uuids else None, allocated, size * 9 // 10, growth_per_step=growth, categories=categories)
            alarms = [{"code": "watch/growth", "step": 118, "text": "allocated grows by 200 MiB a step"}] if growth == 200 << 20 else []
            label = "a-very-long-name-of-a-training-script-that-somebody-wrote.py" if i % 8 == 0 else "train.py"
            machine.status(pid, devices=[counters], step=100 + i, rank=i if i % 3 == 0 else None, alarms=alarms, label=label)


if __name__ == "__main__":
    import tempfile

    from harness import binary as the_binary

    with tempfile.TemporaryDirectory() as folder:
        gpus, processes = map(int, sys.argv[1:3])
        machine = Machine(folder, os.environ.get("PLIMSOLL_CACHE", Path(folder, "cache")), gpus)
        try:
            busy(machine, the_binary(), gpus, processes)
            sys.exit(subprocess.run(sys.argv[3:], env=machine.environment(PATH=os.environ["PATH"])).returncode)
        finally:
            machine.end()
