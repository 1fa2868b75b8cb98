"""Plans of `plimsoll fit` (phantom) against the real GPU. One JSON line for each.

    PLIMSOLL_BIN=target/release/plimsoll python bench/fit/truth.py     on a machine with an H200 (FIT_CARD=h100 for an H100)
"""
import json, os, re, subprocess, sys, tempfile, time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
BIN = os.environ["PLIMSOLL_BIN"]
PYTHON = os.environ.get("PLIMSOLL_PYTHON", sys.executable)
CARD = os.environ.get("FIT_CARD", "h200")
PLANS = Path(os.environ.get("FIT_PLANS", HERE / "plans"))
BUDGETS = (8, 12, 24)
# Two fifths more than the largest batch that a budget carries as it is (h200-largest.jsonl).
ROWS = [json.loads(it) for it in (HERE / "h200-largest.jsonl").read_text().splitlines()]
BATCH = {(it["model"], it["budget"]): it["found"] * 7 // 5 for it in ROWS if it["what"] == "largest"}
MAX = {"gpt2": (12, 1, 128, 1), "resnet50": (12, 1, 1024, 1), "mlp": (12, 1024, 131072, 512)}
BEGAN, LATEST = time.time(), float(os.environ.get("SECONDS_IN_ALL", 235))
LOCK = os.path.join(tempfile.mkdtemp(), "timing"); open(LOCK, "w").close()
only = os.environ.get("ONLY")
if only:
    BATCH = {k: v for k, v in BATCH.items() if k[0] in only.split(",")}
    MAX = {k: v for k, v in MAX.items() if k in only.split(",")}


def say(**fields):
    print(json.dumps({"at": round(time.time() - BEGAN), **fields}), flush=True)


def train(model, batch, *more):
    return [PYTHON, str(HERE / "train.py"), "--model", model, "--batch-size", str(batch), *map(str, more)]


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


def plan(model, budget):
    """Made on the phantom; kept ones are used again."""
    path, told = PLANS / f"{model}-{budget}.toml", PLANS / f"{model}-{budget}.json"
    if not told.exists():
        began = time.time()
        code, text = call([BIN, "fit", "--gpu", CARD, "--limit-reserved", f"{budget}GiB", "--plan", str(path), "--json", str(told), "-q",
                           "--", *train(model, BATCH[model, budget])])
        say(what="fit", model=model, budget=budget, exit=code, wall=round(time.time() - began, 1), tail=text[-300:] if code else "")
    return path, told


def with_plan(case):
    model, budget = case
    path, told = plan(model, budget)
    if not path.exists():
        return say(what="plan", model=model, budget=budget, error="no plan")
    found = json.load(open(told))
    fields = {"predicted_reserved": int(re.search(r"predicted_reserved_bytes = (\d+)", path.read_text())[1])}
    fields["remedies"] = re.findall(r'^id = "(.*)"', path.read_text(), re.M)
    best = (found.get("plans") or [{}])[0]
    fields["predicted"] = {k: v for k, v in best.items() if k in ("time_factor", "time_factor_range", "needs_bytes", "peak_allocated_bytes", "peak_reserved_bytes")}
    got = measured([BIN, "run", "--plan", str(path), "--", *train(model, BATCH[model, budget])], PLIMSOLL_LIMIT_RESERVED=str(budget * 2**30))
    say(what="plan", model=model, budget=budget, batch=BATCH[model, budget], **fields, measured=got)


def plain(case):
    say(what="plain", model=case[0], budget=case[1], batch=BATCH[case], measured=measured(train(case[0], BATCH[case])))


def largest(model):
    budget, low, high, step = MAX[model]
    told = PLANS / f"max-{model}.json"
    if not told.exists():
        began = time.time()
        call([BIN, "fit", "--find-max", f"batch={low}..{high}:{step}", "--gpu", CARD, "--limit-reserved", f"{budget}GiB", "--json", str(told),
              "-q", "--", *train(model, "{batch}")])
        say(what="find-max", model=model, wall=round(time.time() - began, 1))
    found = json.load(open(told)) if told.exists() else {}
    n = (found.get("found") or {}).get("batch")
    if n is None:
        return say(what="max", model=model, error="nothing found", found=found)
    res = {}
    for batch in (n, n + step):
        got = measured(train(model, batch, "--limit", budget, "--steps", 6))
        res[batch] = {k: got.get(k) for k in ("exit", "oom", "reserved", "retries", "tail") if k in got}
    say(what="max", model=model, budget=budget, found=n, runs=found.get("runs"), measured=res)


if __name__ == "__main__":
    PLANS.mkdir(exist_ok=True)
    cases = [it for it in BATCH if it[1] in BUDGETS]
    if sys.argv[1:] == ["plans"]:
        with ThreadPoolExecutor(int(os.environ.get("AT_ONCE", 1))) as pool:
            list(pool.map(lambda it: plan(*it), cases))
        raise SystemExit
    jobs = [(with_plan, c) for c in cases] + [(plain, c) for c in cases] + [(largest, m) for m in MAX]
    def safe(job):
        try:
            job[0](job[1])
        except Exception as error:
            say(what="error", job=str(job[1]), error=repr(error))
    with ThreadPoolExecutor(int(os.environ.get("AT_ONCE", 3))) as pool:
        list(pool.map(safe, jobs))
