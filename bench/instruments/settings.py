"""Each script under each plan, on whatever device there is; a line each.

    python bench/fit/settings/drive.py phantom.jsonl plimsoll predict --gpu h200 --until-exit --quiet
    python bench/fit/settings/drive.py real.jsonl                                       # on a GPU
"""
import json
import os
import subprocess
import sys
import tempfile

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, here)
from cases import CASES
phantom = sys.argv[2:] or None
out = open(sys.argv[1], "a")
for name, words, plans in CASES:
    for plan in plans:
        ids = "+".join(it["id"] + (":" + str(it.get("settings") or it.get("after")) if len(it) > 1 else "") for it in plan) or "plain"
        env = dict(os.environ, PYTHONPATH=here)
        if plan:
            env["PLIMSOLL_PLAN"] = json.dumps({"version": 1, "remedies": plan})
        for it in plan:
            if it["id"] == "allocator":
                env["PYTORCH_CUDA_ALLOC_CONF"] = it["settings"]
        command = [sys.executable, os.path.join(here, words[0])] + words[1:]
        if phantom:
            command = phantom + ["--"] + command
        else:
            env.update(REAL="1", PYTHONPATH=os.path.join(here, "../../../agent") + ":" + here, PLIMSOLL_MODE="run", PLIMSOLL_STOP="until-exit", PLIMSOLL_SESSION=tempfile.mkdtemp(), PLIMSOLL_EVENTS="1000", HF_HUB_OFFLINE="1")
        ran = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
        lines = [it[7:] for it in ran.stdout.splitlines() if it.startswith("RESULT ")]
        row = {"case": name, "plan": ids, "code": ran.returncode} | (json.loads(lines[-1]) if lines else {"error": ran.stderr[-600:]})
        print(json.dumps(row), file=out, flush=True)
