"""What `view --live` costs a run, and how late it shows a step. No browser: its endpoint is asked as the page asks it.

    python bench/instruments/view_live.py                    on a GPU, `plimsoll run`; about 50 s
    python bench/instruments/view_live.py --phantom          without one, `plimsoll predict`

Runs the same small training loop with and without a viewer beside it, in turns. The loop notes when each step was over, by
the clock of the machine; the asker notes when it first saw that step. Prints one JSON object: seconds from the end of a step
until it is shown, when asked twice a second, as the page does, and 20 times a second; what a step takes with and without.
Needs PLIMSOLL_BIN, or `plimsoll` in the path, and a Python with torch.
"""

import argparse
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

LOOP = """
import json, sys, time, torch
steps = int(sys.argv[1])
model = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(24)]).cuda()
optimizer = torch.optim.AdamW(model.parameters())
data = torch.ones(2048, 1024, device="cuda")
ends, cpu = [], []
for step in range(steps):
    model(data).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    torch.cuda.synchronize()
    ends.append(time.time())
    cpu.append(time.process_time())
    time.sleep(0.005)
print("ENDS " + json.dumps([ends, cpu]), flush=True)
"""


def binary():
    return os.environ.get("PLIMSOLL_BIN", "plimsoll")


class Asker(threading.Thread):
    """Asks for what is new, as the page does, and notes when each step was first there."""

    def __init__(self, url, every):
        super().__init__(daemon=True)
        self.url, self.every, self.seen, self.is_over = url, every, {}, False

    def run(self):
        n = 0
        while not self.is_over:
            start = time.time()
            with urllib.request.urlopen(f"{self.url}api/live?from={n}") as answer:
                told = json.load(answer)
            now = time.time()
            n = n + len(told["points"]) if told["from"] == n else 0
            for point in told["points"]:
                # The points of a step carry its number once it is over.
                self.seen.setdefault(point[2], now)
            time.sleep(max(0.01, self.every - (now - start)))


def trained(script, args):
    words = ["predict", "--until-exit"] if args.phantom else ["run"]
    ran = subprocess.run([binary(), *words, "--", sys.executable, str(script), str(args.steps)], capture_output=True, text=True, timeout=300)
    told = re.search(r"ENDS (\[.*\])", ran.stdout + ran.stderr)
    if not told:
        raise SystemExit(f"the loop did not end:\n{ran.stdout[-2000:]}{ran.stderr[-2000:]}")
    ends, cpu = json.loads(told[1])
    # The first steps make what stays.
    return ends, [statistics.median(1000 * (b - a) for a, b in zip(it[10:], it[11:], strict=False)) for it in (ends, cpu)]


def watched(script, args, every):
    viewer = subprocess.Popen([binary(), "view", "--live", "--no-open"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        asker = Asker(viewer.stdout.readline().strip(), every)
        asker.start()
        ends, medians = trained(script, args)
        time.sleep(1)
        asker.is_over = True
        asker.join()
        spent = sum(map(int, Path(f"/proc/{viewer.pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13])) / os.sysconf("SC_CLK_TCK")
    finally:
        viewer.send_signal(signal.SIGINT)
        viewer.wait()
    late = sorted(asker.seen[step] - end for step, end in enumerate(ends, 1) if step in asker.seen and step < len(ends))
    if len(late) < len(ends) / 2:
        raise SystemExit(f"only {len(late)} of {len(ends)} steps were shown")
    return medians, late, spent


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--phantom", action="store_true")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--turns", type=int, default=2)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "train.py"
        script.write_text(LOOP)
        alone, beside, late, spent = [], [], {"0.5": [], "0.05": []}, []
        for turn in range(args.turns):
            alone.append(trained(script, args)[1])
            every = (0.5, 0.05)[turn % 2]
            medians, own, cpu = watched(script, args, every)
            beside.append(medians)
            late[str(every)] += own
            spent.append(cpu)
    middle = lambda all, at: round(statistics.median(it[at] for it in all), 3)  # noqa: E731
    quantile = lambda all, share: round(sorted(all)[min(len(all) - 1, int(share * len(all)))], 3)  # noqa: E731
    print(json.dumps({
        "steps": args.steps,
        "seconds_until_shown": {it: {"median": quantile(all, 0.5), "p95": quantile(all, 0.95), "most": round(max(all), 3)} for it, all in late.items() if all},
        "ms_per_step": {"alone": middle(alone, 0), "beside": middle(beside, 0)},
        "cpu_ms_per_step": {"alone": middle(alone, 1), "beside": middle(beside, 1)},
        "server_cpu_seconds": spent,
    }, indent=1))


main()
