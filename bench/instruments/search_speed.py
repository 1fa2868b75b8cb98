"""How long a search takes: wall time, processor time and runs of `plimsoll fit` on the scripts that have a bar.

    taskset -c 0,1 python bench/instruments/search_speed.py --binary target/release/plimsoll [--only gpt2,resnet50] [--before OTHER_BINARY]

A line of JSON for each search: of two binaries they take turns. Bars on two quiet cores: gpt2 12 s, resnet50 25 s, hf_trainer 20 s, compiled 60 s; `find-` at most 8 runs.
"""

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from sets import ROOT

GPT2, RESNET = ["examples/finetune_gpt2.py", "--batch-size"], ["examples/train_resnet50.py", "--batch-size"]
SEARCHES = {
    "gpt2": (["--gpu", "rtx3060-12g"], [*GPT2, "16"]),
    "resnet50": (["--gpu", "rtx3060-12g"], [*RESNET, "128"]),
    "hf_trainer": (["--gpu", "h100-80g", "--limit-reserved", "17285146214B"], ["bench/programs/people/hf_trainer.py"]),
    "compiled": (["--gpu", "h100-80g", "--limit-reserved", "8979166003B"], ["bench/programs/loops/compiled.py"]),
    "find-gpt2": (["--gpu", "rtx3060-12g", "--find-max", "batch=1..2048"], [*GPT2, "{batch}"]),
    "find-resnet50": (["--gpu", "rtx3060-12g", "--find-max", "batch=1..2048"], [*RESNET, "{batch}"]),
    "find-resnet50-24g": (["--gpu", "rtx4090", "--find-max", "batch=1..2048"], [*RESNET, "{batch}"]),
}


def search(binary, name):
    options, script = SEARCHES[name]
    with tempfile.TemporaryDirectory() as folder:
        plan = [] if "--find-max" in options else ["--plan", f"{folder}/plan.toml"]
        words = [binary, "fit", *options, *plan, "--json", f"{folder}/found.json", "--", sys.executable, *script]
        load, before, started = os.getloadavg()[0], resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        ran = subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        wall, after = time.monotonic() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
        found = json.loads(Path(folder, "found.json").read_text() or "{}") if Path(folder, "found.json").exists() else {}
    runs = re.search(r"started (\d+) times", ran.stdout)
    cpu = [round(getattr(after, it) - getattr(before, it), 1) for it in ("ru_utime", "ru_stime")]
    plans = [[re.sub(r"[{}\"]", "", json.dumps(it["remedies"])), it["needs_bytes"]] for it in found.get("plans", [])]
    row = {"search": name, "code": ran.returncode, "seconds": round(wall, 1), "user": cpu[0], "system": cpu[1], "runs": runs and int(runs[1]), "load_before": load}
    return row | ({"plans": plans} if plan else {"found": found.get("found")}) | ({} if runs else {"said": ran.stdout[-400:]})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--before")
    parser.add_argument("--only", default=",".join(SEARCHES))
    args = parser.parse_args()
    for name in args.only.split(","):
        for which in filter(None, (args.before, args.binary)):
            row = {"build": "before" if which == args.before else "now"} | search(str(Path(which).resolve()), name)
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
