"""Step-time factors that `plimsoll fit` estimates, beside those measured on an H200 (h200.json).

    python bench/fit/time.py path/to/plimsoll

Each case allows one remedy and sets a limit at which it is needed in the measured strength.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
CASES = [
    # script, batch, remedy, limit, measured with, measured without
    ("gpt2m", 8, "micro-batches", "24GiB", "gpt2m-accum2", "gpt2m-base"),
    ("gpt2m", 8, "autocast", "31GiB", "gpt2m-amp-bf16", "gpt2m-base"),
    ("gpt2m", 8, "checkpoint", "11GiB", "gpt2m-ckpt", "gpt2m-base"),
    # The measured run also had channels_last, which is no remedy.
    ("rn50", 128, "autocast", "11GiB", "rn50-amp-bf16-cl", "rn50-base"),
]


def main(binary):
    seconds = json.loads((HERE / "h200.json").read_text())["seconds"]
    print("| script | plan | estimated | range | measured | error |\n|---|---|---|---|---|---|")
    for name, batch, remedy, limit, changed, plain in CASES:
        measured = seconds[changed] / seconds[plain]
        with tempfile.TemporaryDirectory() as folder:
            told = Path(folder) / "fit.json"
            words = [binary, "fit", "--gpu", "h200", "--limit-reserved", limit, "--allow", remedy]
            words += ["--plan", f"{folder}/plan.toml", "--json", str(told), "-q", "--"]
            words += [sys.executable, str(HERE / "script.py"), name, str(batch)]
            subprocess.run(words, check=False)
            plans = json.loads(told.read_text())["plans"] if told.exists() else []
        if not plans or plans[0]["time_factor"] is None:
            print(f"| {name} | {remedy} | no plan | | {measured:.2f} | |", flush=True)
            continue
        factor, (low, high) = plans[0]["time_factor"], plans[0]["time_factor_range"]
        off = (factor / measured - 1) * 100
        shown = " + ".join(str(it.get("shown", it.get("id", it))) if isinstance(it, dict) else str(it) for it in plans[0]["remedies"])
        print(f"| {name} | {shown} | {factor:.2f} | {low:.2f}-{high:.2f} | {measured:.2f} | {off:+.0f} % |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
