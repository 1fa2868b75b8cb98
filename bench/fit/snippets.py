"""Training loops as widely read texts have them, each completed into a script: predicted, and fitted to 8 GB.

    PLIMSOLL_BIN=target/release/plimsoll python bench/fit/snippets.py [NAME ...]

One JSON line for each: what it takes as it is, the plan, what it then takes, runs and seconds.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BIN = os.environ["PLIMSOLL_BIN"]
PYTHON = os.environ.get("PLIMSOLL_PYTHON", sys.executable)
SCRIPTS = Path(__file__).resolve().parent / "snippets"
CARD = "rtx4060-8g"


def main():
    for name in sys.argv[1:] or sorted(it.stem for it in SCRIPTS.glob("*.py") if it.stem != "rest"):
        began, folder = time.time(), Path(tempfile.mkdtemp())
        script = [PYTHON, SCRIPTS / (name + ".py")]
        options = ["--gpu", CARD, "--plan", folder / "plan.toml", "--json", folder / "fit.json", "--quiet"]
        ran = subprocess.run([str(it) for it in [BIN, "fit", *options, "--", *script]], capture_output=True, text=True)
        if ran.returncode == 2:
            print(json.dumps({"snippet": name, "failed": ran.stderr.strip()[-300:]}), flush=True)
            continue
        answer = json.loads((folder / "fit.json").read_text())
        best = (answer["plans"] or [None])[0]
        print(
            json.dumps(
                {
                    "snippet": name,
                    "as_it_is": answer["as_it_is"]["needs_bytes"],
                    "outcome": answer["outcome"],
                    "limit": answer["limit"]["bytes"],
                    "plan": best and best["remedies"],
                    "needs": best and best["needs_bytes"],
                    "by_hand": answer["change"]["by_hand"],
                    "runs": answer["runs"],
                    "seconds": round(time.time() - began, 1),
                }
            ),
            flush=True,
        )


if __name__ == "__main__":
    main()
