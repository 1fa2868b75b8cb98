"""What settings and layouts do that a plan can have: each script of ../programs/settings under each of its plans, on whatever device there is.

    python bench/instruments/settings.py phantom.jsonl plimsoll predict --gpu h200 --until-exit --quiet
    python bench/instruments/settings.py real.jsonl                                       on a GPU

A line of JSON each: peaks, and the median of the steps' seconds.
"""

import json
import os
import subprocess
import sys
import tempfile

from sets import PROGRAMS, ROOT

FOLDER = PROGRAMS / "settings"
ROOMY, ROUNDED = ({"id": "allocator", "settings": it} for it in ("expandable_segments:True", "roundup_power2_divisions:2"))
AFTER_STEP, AFTER_BACKWARD = ({"id": "empty-cache", "after": it} for it in ("step", "backward"))
LAST, IN_PLACE, CHUNKED, ATTENTION = ({"id": it} for it in ("channels-last", "inplace-activations", "chunked-loss", "attention"))
# Name, script with its words, plans.
CASES = (
    ("frag", ["frag.py"], [[], [ROOMY], [ROUNDED], [AFTER_STEP], [AFTER_BACKWARD]]),
    ("resnet50", ["resnet.py", "resnet50"], [[], [LAST], [IN_PLACE], [LAST, IN_PLACE]]),
    ("resnet50-amp", ["resnet.py", "resnet50", "amp"], [[], [LAST]]),
    ("vgg16", ["resnet.py", "vgg16"], [[], [LAST, IN_PLACE]]),
    ("segment", ["segment.py"], [[], [CHUNKED], [CHUNKED, LAST]]),
    ("gpt2", ["eager.py", "gpt2"], [[], [ATTENTION], [ATTENTION, CHUNKED, ROOMY]]),
    ("llama", ["eager.py", "llama"], [[], [ATTENTION]]),
)


def environment(plan, phantom):
    res = dict(os.environ, PYTHONPATH=str(FOLDER))
    if plan:
        res["PLIMSOLL_PLAN"] = json.dumps({"version": 1, "remedies": plan})
    for it in plan:
        if it["id"] == "allocator":
            res["PYTORCH_CUDA_ALLOC_CONF"] = it["settings"]
    if not phantom:
        # The agent alone, as `plimsoll run` starts it.
        res |= {"REAL": "1", "PYTHONPATH": f"{ROOT / 'agent'}:{FOLDER}", "PLIMSOLL_MODE": "run", "PLIMSOLL_STOP": "until-exit"}
        res |= {"PLIMSOLL_SESSION": tempfile.mkdtemp(), "PLIMSOLL_EVENTS": "1000", "HF_HUB_OFFLINE": "1"}
    return res


def main():
    if sys.argv[1:] in ([], ["--help"]):
        sys.exit(__doc__)
    phantom = sys.argv[2:]
    with open(sys.argv[1], "a") as out:
        for name, (script, *words), plans in CASES:
            for plan in plans:
                shown = "+".join(it["id"] + "".join(f":{it[key]}" for key in ("settings", "after") if key in it) for it in plan)
                command = [*phantom, *(["--"] if phantom else []), sys.executable, FOLDER / script, *words]
                ran = subprocess.run(command, env=environment(plan, phantom), capture_output=True, text=True, timeout=300)
                lines = [it.removeprefix("RESULT ") for it in ran.stdout.splitlines() if it.startswith("RESULT ")]
                row = {"case": name, "plan": shown or "plain", "code": ran.returncode}
                print(json.dumps(row | (json.loads(lines[-1]) if lines else {"error": ran.stderr[-600:]})), file=out, flush=True)


if __name__ == "__main__":
    main()
