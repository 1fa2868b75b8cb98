"""What a scrape of `plimsoll exporter` costs: 8 phantom GPUs, 40 processes, each with a status file.

    python bench/instruments/exporter_cost.py BINARY [SCRAPES]

Processor time is that of all threads of the exporter, as the kernel counts it in nanoseconds. A phantom answers NVML faster than a driver does.
"""

import http.client
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "top")]


def processor_time(pid):
    """Milliseconds so far."""
    return sum(int(it.read_text().split()[0]) for it in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e6


def main():
    if sys.argv[1:] in ([], ["--help"]):
        sys.exit(__doc__)
    os.environ["PLIMSOLL_BIN"] = binary = os.path.abspath(sys.argv[1])
    scrapes = int(sys.argv[2]) if 2 < len(sys.argv) else 30
    from scene import GIB, Machine

    with tempfile.TemporaryDirectory() as folder:
        machine = Machine(folder, Path(folder, "cache"), 8)
        exporter = None
        try:
            uuids = machine.uuids(binary)
            categories = {it: GIB for it in ("parameters", "gradients", "optimizer", "other")}
            for i in range(40):
                pid = machine.process({i % 8: 5 * GIB})
                counters = machine.counters(uuids[i % 8], 4 * GIB, 5 * GIB, growth_per_step=1 << 20, largest_free=GIB, categories=categories)
                machine.status(pid, devices=[counters], label=f"train-{i}.py", expected_peak=6 * GIB)
            exporter = subprocess.Popen(
                [binary, "exporter", "--listen", "127.0.0.1:0"], env=machine.environment(), stdout=subprocess.PIPE, text=True
            )
            address = exporter.stdout.readline().split("/")[2]
            connection = http.client.HTTPConnection(address)

            def scrape():
                connection.request("GET", "/metrics")
                return connection.getresponse().read()

            text = scrape()
            print(f"{len(text)} bytes, {sum(not it.startswith(b'#') for it in text.splitlines())} series")
            for what, pause in (("with a new look at the machine", 1.05), ("within the second, from memory", 0)):
                before, walls = processor_time(exporter.pid), []
                for _ in range(scrapes):
                    time.sleep(pause)
                    began = time.perf_counter()
                    scrape()
                    walls.append((time.perf_counter() - began) * 1e3)
                spent = (processor_time(exporter.pid) - before) / scrapes
                print(f"{what}: {spent:.2f} ms of a processor a scrape; answered in {sorted(walls)[scrapes // 2]:.1f} ms (median), {max(walls):.1f} at most")
            status = Path(f"/proc/{exporter.pid}/status").read_text()
            print(next(line for line in status.splitlines() if line.startswith("VmHWM")))
        finally:
            if exporter:
                exporter.terminate()
                exporter.wait()
            machine.end()


main()
