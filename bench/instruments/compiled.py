"""How long `plimsoll predict` takes of a compiled program, beside the program's own first steps on a GPU, where it compiles.

    python bench/instruments/compiled.py --plimsoll BINARY [--only NAME ...] [--turns 2] [--limit 900] [--out compile.json]

Each program of ../programs/compiled.py runs for six steps, with empty caches of Inductor and Triton, for real and on the phantom, in turns on the same machine. Seconds by the
clock, from the start of the process:
  to compiled   the real run to the end of the last step that took more than a second: by then everything is compiled
  real          the real run to its end
  predict       the whole of `plimsoll predict`, with its second run where it makes one
The bar is that `predict` takes at most twice `to compiled`. Without a GPU only `predict` is measured. A program that is not done in `--limit` seconds is
said to be so. It needs torch, and torchvision for the ResNet.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

from sets import PROGRAMS

COMPILED = str(PROGRAMS / "compiled.py")
NAMES = ("resnet50", "gpt_dynamic", "gpt_static")
LONG = 1.0
"""Seconds of a step that compiled something."""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plimsoll", required=True, type=os.path.abspath)
    parser.add_argument("--only", nargs="+", choices=NAMES, default=NAMES)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--limit", type=float, default=900)
    parser.add_argument("--gpu", default=None, help="the card of the prediction, where there is no GPU")
    parser.add_argument("--out")
    arguments = parser.parse_args()
    has_gpu = subprocess.run([sys.executable, "-c", "import sys, torch; sys.exit(not torch.cuda.is_available())"]).returncode == 0
    rows = []
    for name in arguments.only:
        for turn in range(arguments.turns):
            real = one([sys.executable, COMPILED, name], arguments.limit) if has_gpu else None
            card = ["--gpu", arguments.gpu] if arguments.gpu else []
            predict = [arguments.plimsoll, "predict", "--json", "-", *card, "--until-exit", "--", sys.executable, COMPILED, name]
            rows.append({"program": name, "turn": turn, "real": real, "predict": one(predict, arguments.limit)})
            print(row(rows[-1]), flush=True)
            if arguments.out:
                with open(arguments.out, "w") as file:
                    json.dump(rows, file, indent=1)


def one(words, limit):
    """Runs it with empty caches: its exit code, its seconds, and what it says of its steps or of memory."""
    with tempfile.TemporaryDirectory() as caches:
        caching = {"TORCHINDUCTOR_CACHE_DIR": caches + "/inductor", "TRITON_CACHE_DIR": caches + "/triton"}
        start = time.time()
        process = subprocess.Popen(
            words,
            env=os.environ | caching | {"BENCH_START": repr(start)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            said, errors = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGTERM)
            process.communicate()
            return {"code": None, "seconds": limit}
    result = {"code": process.returncode, "seconds": round(time.time() - start, 1)}
    if process.returncode:
        return result | {"errors": errors[-600:]}
    # A program says in its last line when each step was done; a prediction is one JSON.
    if said.lstrip().startswith("{\n") or '"peak_reserved_bytes"' in said:
        return result | {"report": said[said.index("{") :]}
    ends = json.loads(said.splitlines()[-1])
    starts = [ends["begun"], *ends["steps"]]
    compiled = [end for begin, end in zip(starts, ends["steps"], strict=False) if end - begin > LONG]
    return result | ends | {"to_compiled": round(max(compiled, default=ends["steps"][0]), 1)}


def row(it):
    real, predict = it["real"] or {}, it["predict"]
    said = [f"{it['program']:12} turn {it['turn']}"]
    if real.get("code") == 0:
        said.append(f"to compiled {real['to_compiled']:.1f} s, real {real['seconds']:.1f} s, reserved {real['reserved'] / 2**20:.0f} MiB")
    elif real:
        said.append(f"real: {real}")
    if predict["code"] in (0, 1):
        said.append(f"predict {predict['seconds']:.1f} s")
        report = json.loads(predict.pop("report", "{}"))
        if "peak_reserved_bytes" in report:
            said.append(f"{report['peak_reserved_bytes'] / 2**20:.0f} MiB predicted")
        if real.get("code") == 0:
            said.append(f"{predict['seconds'] / real['to_compiled']:.2f} times")
    else:
        said.append(f"predict: {predict}")
    return "; ".join(said)


if __name__ == "__main__":
    main()
