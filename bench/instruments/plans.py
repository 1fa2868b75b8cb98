"""Plans of `plimsoll fit` (phantom) against the real GPU. One JSON line for each.

    PLIMSOLL_BIN=target/release/plimsoll python bench/instruments/plans.py plans     makes the plans, anywhere
    PLIMSOLL_BIN=target/release/plimsoll python bench/instruments/plans.py           trains with them, on a machine with an H200
    FIT_CARD=h100 for an H100; ONLY=t5,swin for these models; `python bench/instruments/plans.py edges` tries the largest batches; FIT_PLANS is where plans are kept

A model gets two fifths more samples than a budget carries as it is: by trial on a GPU where ../results/raw/largest-h200.jsonl has it, else by
`--find-max` on the phantom.
"""
import json, os, re, subprocess, sys, tempfile, time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sets import PROGRAMS, RAW

if "--help" in sys.argv:
    sys.exit(__doc__)
BIN = os.environ["PLIMSOLL_BIN"]
PYTHON = os.environ.get("PLIMSOLL_PYTHON", sys.executable)
CARD = os.environ.get("FIT_CARD", "h200")
PLANS = Path(os.environ.get("FIT_PLANS", Path(tempfile.gettempdir(), "plimsoll-plans")))
BUDGETS = (8, 12, 24)
ROWS = [json.loads(it) for it in (RAW / "largest-h200.jsonl").read_text().splitlines()]
TRIED = {(it["model"], it["budget"]): it["found"] for it in ROWS if it["what"] == "largest"}
MODELS = os.environ.get("ONLY", ",".join({it: 0 for it, _ in TRIED})).split(",")
# What `--find-max` tries: from, to, in steps of.
RANGE = {"gpt2": (1, 128, 1), "resnet50": (1, 1024, 1), "mlp": (1024, 131072, 512), "recommender": (1024, 524288, 512)}
BEGAN, LATEST = time.time(), float(os.environ.get("SECONDS_IN_ALL", 235))
LOCK = os.path.join(tempfile.mkdtemp(), "timing"); open(LOCK, "w").close()


def say(**fields):
    print(json.dumps({"at": round(time.time() - BEGAN), **fields}), flush=True)


def train(model, batch, *more):
    return [PYTHON, str(PROGRAMS / "train.py"), "--model", model, "--batch-size", str(batch), *map(str, more)]


def call(words, **env):
    left = LATEST - (time.time() - BEGAN)
    if left < 5:
        return None, "no time left"
    try:
        it = subprocess.run(words, capture_output=True, text=True, timeout=left, env={**os.environ, **env}, cwd=tempfile.mkdtemp())
        return it.returncode, it.stdout + it.stderr
    except subprocess.TimeoutExpired:
        return None, "timed out"


def measured(words, **env):
    out = tempfile.mktemp(suffix=".json")
    began = time.time()
    code, text = call(words + ["--out", out], TIMING_LOCK=LOCK, **env)
    res = {"exit": code, "oom": "out of memory" in text.lower() and code != 0, "wall": round(time.time() - began, 1)}
    if os.path.exists(out):
        res.update(json.load(open(out)))
    if code != 0 and not res["oom"]:
        res["tail"] = text[-600:]
    return res


def found_largest(model, budget):
    """The largest batch that the budget carries as it is, on the phantom."""
    told = PLANS / f"max-{model}-{budget}.json"
    if not told.exists():
        began = time.time()
        low, high, step = RANGE.get(model, (1, 2048, 1))
        options = ["--find-max", f"batch={low}..{high}:{step}", "--gpu", CARD, "--limit-reserved", f"{budget}GiB", "--json", str(told), "-q"]
        code, text = call([BIN, "fit", *options, "--", *train(model, "{batch}")])
        say(what="find-max", model=model, budget=budget, wall=round(time.time() - began, 1), tail=text[-300:] if code else "")
    found = json.loads(told.read_text()) if told.exists() else {}
    return (found.get("found") or {}).get("batch")


def too_large(model, budget):
    return (TRIED.get((model, budget)) or found_largest(model, budget)) * 7 // 5


def plan(model, budget):
    """Made on the phantom; kept ones are used again."""
    path, told = PLANS / f"{model}-{budget}.toml", PLANS / f"{model}-{budget}.json"
    if not told.exists():
        began = time.time()
        code, text = call([BIN, "fit", "--gpu", CARD, "--limit-reserved", f"{budget}GiB", "--plan", str(path), "--json", str(told), "-q",
                           "--", *train(model, too_large(model, budget))])
        say(what="fit", model=model, budget=budget, exit=code, wall=round(time.time() - began, 1), tail=text[-300:] if code else "")
    return path, told


def with_plan(case):
    model, budget = case
    path, told = plan(model, budget)
    batch = too_large(model, budget)
    if not path.exists():
        return say(what="plan", model=model, budget=budget, error="no plan")
    found = json.load(open(told))
    fields = {"predicted_reserved": int(re.search(r"predicted_reserved_bytes = (\d+)", path.read_text())[1])}
    fields["remedies"] = re.findall(r'^id = "(.*)"', path.read_text(), re.M)
    best = (found.get("plans") or [{}])[0]
    fields["predicted"] = {k: v for k, v in best.items() if k in ("time_factor", "time_factor_range", "needs_bytes", "peak_allocated_bytes", "peak_reserved_bytes")}
    got = measured([BIN, "run", "--plan", str(path), "--", *train(model, batch)], PLIMSOLL_LIMIT_RESERVED=str(budget * 2**30))
    say(what="plan", model=model, budget=budget, batch=batch, **fields, measured=got)


def plain(case):
    batch = too_large(*case)
    say(what="plain", model=case[0], budget=case[1], batch=batch, measured=measured(train(case[0], batch)))


def edge(case):
    model, budget = case
    found = found_largest(model, budget)
    if found is None:
        return say(what="max", model=model, budget=budget, error="nothing found")
    tried = {}
    for batch in (found, found + RANGE.get(model, (1, 2048, 1))[2]):
        got = measured(train(model, batch, "--limit", budget, "--steps", 6))
        tried[batch] = {k: got.get(k) for k in ("exit", "oom", "reserved", "retries", "tail") if k in got}
    say(what="max", model=model, budget=budget, found=found, measured=tried)


def main():
    PLANS.mkdir(exist_ok=True)
    cases = [(model, budget) for model in MODELS for budget in BUDGETS]
    if sys.argv[1:] == ["plans"]:
        jobs = [(lambda it: plan(*it), case) for case in cases]
    elif sys.argv[1:] == ["edges"]:
        jobs = [(edge, case) for case in cases]
    else:
        jobs = [(with_plan, case) for case in cases] + [(plain, case) for case in cases]

    def safe(job):
        try:
            job[0](job[1])
        except Exception as error:
            say(what="error", job=str(job[1]), error=repr(error))

    with ThreadPoolExecutor(int(os.environ.get("AT_ONCE", 3))) as pool:
        list(pool.map(safe, jobs))


if __name__ == "__main__":
    main()
