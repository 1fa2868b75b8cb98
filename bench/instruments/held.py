"""Adapters on a card held to 8, 12, 16 or 24 GiB: does each job end there, or run out of memory, and does plimsoll say the same before?

Each job of programs/adapters runs twice: with batches that take a little less than the card has, and with a little more. `--plan` chooses both on a
phantom that holds nothing back; the file it writes is what the other parts read. Held by PyTorch (`set_per_process_memory_fraction`), or by a neighbour:
a process that fills the card until so much is free.

    python bench/instruments/held.py --plan jobs.json
    python bench/instruments/held.py --jobs jobs.json --real real.jsonl --phantom phantom.jsonl
    python bench/instruments/held.py --jobs jobs.json --neighbour --real beside.jsonl --phantom beside-phantom.jsonl
    python bench/instruments/held.py --compare real.jsonl phantom.jsonl
"""

import argparse
import functools
import json
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from adapters import FOLDER, run

MEASURED = Path(__file__).resolve().parents[1] / "results" / "raw" / "adapters-h100.jsonl"
CARDS = {
    8: [
        "adalora", "dora", "dora_nf4_8bit", "dpo_adapter", "gptq_prompt", "hqq_lora", "ia3", "kto", "load_float_then_half", "loading_decides", "oft", "prompt_tuning", "qlora_merge",
        "qlora_nf4_double", "sft_packed", "sft_qlora_completions", "trainer_collects_logits", "vl_llava",
    ],
    12: [
        "cpo_simpo", "distilled", "experts_in_4_bits", "grpo", "int8_lora", "lora_merge", "orpo_padded", "paged_adamw_32bit", "rloo", "safetensors_twice", "torchao_int4_head",
        "torchao_int8_lora", "vl_qwen2", "vl_smolvlm",
    ],
    16: ["adam_8bit_all", "dpo_precomputed", "dpo_reference", "qlora_fp4_reentrant", "reward", "several_adapters", "sft_new_words", "torchao_transformers", "unfrozen_by_mistake"],
    24: ["orpo", "sft_full_padded", "torchao_fp8_training"],
}
RANKS = {
    "rank_search": (8, "64..2048:64", []),
    "rank_search_dora": (12, "64..1536:64", ["--dora"]),
}
"""The largest rank that `fit --find-max` finds for a card, which has to end there, and the next one. So many GiB, which ranks, words for the script."""
BESIDE = ["dora", "qlora_nf4_double", "paged_adamw_32bit", "int8_lora", "qlora_fp4_reentrant", "vl_qwen2", "lora_merge", "prompt_tuning"]
"""Those that run beside a neighbour as well: alone on the card, one after the other."""
GIB = 1 << 30
CONTEXT = 760 << 20
"""What an H100's context takes of the card that PyTorch does not (bench/results/cards.md): a card of 8 GiB leaves so much less to PyTorch."""
OVER = (0.985, 1.03)
"""How much of what PyTorch gets the two runs take, by the plan."""

NEIGHBOUR = """
import sys, torch
keep = []
size = 1 << 30
while size >= 2 << 20:
    free = torch.cuda.mem_get_info()[0] - int(sys.argv[1])
    if free >= size:
        keep.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
    else:
        size >>= 1
print("free", torch.cuda.mem_get_info()[0], flush=True)
sys.stdin.read()
"""


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plimsoll", default=os.environ.get("PLIMSOLL_BIN", "plimsoll"))
    parser.add_argument("--python", default=sys.executable, help="the Python that runs the programs")
    parser.add_argument("--gpu", default="h100-80g", help="the card that the phantom imitates")
    parser.add_argument("--plan", metavar="FILE", help="choose the batches, and write them there")
    parser.add_argument("--jobs", metavar="FILE", help="what --plan wrote")
    parser.add_argument("--real", metavar="FILE", help="run on this machine's GPU, and write what was measured there")
    parser.add_argument("--phantom", metavar="FILE", help="run on a phantom, and write what was predicted there")
    parser.add_argument("--neighbour", action="store_true", help="held by a process beside, one job at a time")
    parser.add_argument("--at-once", type=int, default=2, help="phantoms at a time")
    parser.add_argument("--gib-at-once", type=int, default=72, help="of the real card, held by jobs at a time")
    parser.add_argument("--timeout", type=float, default=200)
    parser.add_argument("--compare", nargs=2, metavar=("REAL", "PHANTOM"))
    parser.add_argument("--measured", nargs="*", default=[], metavar="FILE", help="with --plan: peaks of further programs, as adapters.py --phantom writes them")
    parser.add_argument("programs", nargs="*", help="names; default: all")
    return parser.parse_args()


def main():
    args = arguments()
    if args.compare:
        return compare(*map(Path, args.compare))
    if args.plan:
        return plan(args)
    jobs = [it for it in json.loads(Path(args.jobs).read_text()) if not args.programs or it["program"] in args.programs]
    if args.neighbour:
        jobs = [it for it in jobs if it["program"] in BESIDE]
    writes = threading.Lock()

    def kept(file, job, res):
        res.pop("report", None) if "report" not in res else res.update(report={"verdict": res["report"]["verdict"]})
        with writes, open(file, "a") as out:
            out.write(json.dumps({**job, **res}) + "\n")

    waiting = []
    with ThreadPoolExecutor(args.at_once) as phantoms:
        if args.phantom:
            waiting = [phantoms.submit(lambda job=job: kept(args.phantom, job, predicted(args, job))) for job in jobs]
        if args.real:
            (beside if args.neighbour else shared)(args, jobs, kept)
    for it in waiting:
        it.result()
    return 0


def script(args, job, held):
    more = {"ADAPTERS_TIMES": str(job["times"]), **({"ADAPTERS_HELD": str(held)} if held else {})}
    return ["env", *("%s=%s" % it for it in more.items()), args.python, str(FOLDER / job.get("script", job["program"])) + ".py", *job.get("words", ())]


@functools.cache
def total(plimsoll, gpu):
    said = subprocess.run([plimsoll, "cards", "--json"], capture_output=True, text=True, check=True).stdout
    return next(it["total_bytes"] for it in json.loads(said)["cards"] if it["id"] == gpu)


def held(job):
    return job["gib"] * GIB - CONTEXT


def predicted(args, job):
    words = [args.plimsoll, "predict", "--gpu", args.gpu, "--until-exit", "--json", "REPORT", "--full"]
    if args.neighbour:
        words += ["--beside", "%dB" % (total(args.plimsoll, args.gpu) - job["gib"] * GIB)]
    # `env` stands before plimsoll: what follows `--` is a Python command.
    command = script(args, job, 0 if args.neighbour else held(job))
    at = command.index(args.python)
    return run([*command[:at], *words, "--", *command[at:]], args.timeout)


def shared(args, jobs, kept):
    """As many at a time as the card has room for."""
    room, free = threading.Condition(), [args.gib_at_once]

    def one(job):
        with room:
            room.wait_for(lambda: job["gib"] + 1 <= free[0])
            free[0] -= job["gib"] + 1
        try:
            kept(args.real, job, run(script(args, job, held(job)), args.timeout))
        finally:
            with room:
                free[0] += job["gib"] + 1
                room.notify_all()

    with ThreadPoolExecutor(10) as pool:
        list(pool.map(one, jobs))


def beside(args, jobs, kept):
    for job in jobs:
        words = [args.python, "-c", NEIGHBOUR, str(job["gib"] * GIB)]
        neighbour = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        free = int(neighbour.stdout.readline().split()[1])
        kept(args.real, job, {**run(script(args, job, 0), args.timeout), "free": free})
        neighbour.communicate("")


def plan(args):
    """Reserved memory is nearly a line in the rows: the run of the batch as it is and one at the estimate say where the line lies."""
    measured = {}
    for file in (MEASURED, *map(Path, args.measured)):
        for line in file.read_text().splitlines():
            one = json.loads(line)
            measured.setdefault(one["program"], one)
    found = json.loads(Path(args.plan).read_text()) if Path(args.plan).exists() else []
    done = {it["program"] for it in found}

    def at(name, times):
        words = ["env", "ADAPTERS_TIMES=%s" % times, args.plimsoll, "predict", "--gpu", args.gpu, "--until-exit", "--json", "REPORT"]
        return run([*words, "--", args.python, str(FOLDER / name) + ".py"], args.timeout)

    def one(gib, name):
        phases = (measured.get(name) or at(name, 1))["phases"]
        if not phases:
            print(name, "failed", flush=True)
            return
        loading, most = phases[0][2], max(it[2] for it in phases)
        room = gib * GIB - CONTEXT
        times = round((room - loading) / (most - loading), 2)
        job = {"program": name, "gib": gib, "times": times}
        res = at(name, times)
        if not res["phases"]:
            print(name, "failed:", res.get("end"), flush=True)
            return
        there = max(it[2] for it in res["phases"])
        print(name, gib, times, "%.2f GiB of %.2f" % (there / GIB, room / GIB), "%.0f s" % res["seconds"], flush=True)
        for part in OVER:
            found.append({**job, "which": "within" if part < 1 else "beyond", "times": round(1 + (times - 1) * (room * part - most) / (there - most), 3)})
        Path(args.plan).write_text(json.dumps(found, indent=1))

    wanted = [it for it in [*RANKS, *sum(CARDS.values(), [])] if it not in done and (not args.programs or it in args.programs)]
    with ThreadPoolExecutor(args.at_once) as pool:
        for name in wanted:
            if name in RANKS:
                pool.submit(rank, args, found, name)
            else:
                pool.submit(one, next(gib for gib, names in CARDS.items() if name in names), name)
    return 0


def rank(args, found, name):
    gib, ranks, words = RANKS[name]
    job = {"program": name, "script": "rank_search", "gib": gib, "times": 1}
    words = ["--rank", "{rank}", *words]
    command = [args.plimsoll, "fit", "--gpu", args.gpu, "--memory", "%dGiB" % gib, "--find-max", "rank=" + ranks, "--json", "REPORT", "--"]
    res = run([*command, args.python, str(FOLDER / "rank_search.py"), *words], args.timeout)
    value = (res.get("report", {}).get("found") or {}).get("rank")
    print(name, gib, value, "%.0f s" % res["seconds"], "" if value else res.get("end"), flush=True)
    if value:
        step = int(ranks.partition(":")[2])
        for which, it in (("within", value), ("beyond", value + step)):
            found.append({**job, "which": which, "words": [str(it) if word == "{rank}" else word for word in words]})
        Path(args.plan).write_text(json.dumps(found, indent=1))


def read(path):
    return {(it["program"], it["which"]): it for it in map(json.loads, path.read_text().splitlines())}


def ended(it):
    """Whether a job went through on the card; whether plimsoll says so."""
    if "report" in it:
        return {"fits": True, "does_not_fit": False}.get(it["report"]["verdict"])
    if it["code"] == 0:
        return True
    return False if any("out of memory" in line for line in it.get("end", [])) else None


def compare(real, phantom):
    """A row a run: how it ended on the card, what was said before, and how far each phase is off."""
    truth, said = read(real), read(phantom)
    right = same = close = fitting = 0
    for key, one in sorted(truth.items(), key=lambda it: (it[1]["gib"], it[0])):
        other = said.get(key, {"phases": [], "code": None})
        here, there = ended(one), ended(other)
        right += here is not None and here == there
        phases = list(zip(one["phases"], other["phases"]))
        off = [(a[0], b[1] - a[1], b[2] - a[2], 100 * max(abs(b[1] / a[1] - 1), abs(b[2] / a[2] - 1))) for a, b in phases]
        worst = max((it[3] for it in off), default=0)
        if here and there:
            fitting, same, close = fitting + 1, same + (worst == 0), close + (worst <= 0.5)
        words = {True: "ended", False: "ran out", None: "?"}
        most = max((it[2] for it in one["phases"]), default=0) / GIB
        print("| %d | `%s` | %s | %.2f | %s | %s | %s | %s |" % (
            one["gib"], key[0], key[1], most, words[here], {True: "fits", False: "does not fit", None: "?"}[there],
            "equal" if worst == 0 else "%.2f %%" % worst,
            "; ".join("%s: allocated %+d B, reserved %+d MiB" % (it[0], it[1], it[2] >> 20) for it in off if it[1] or it[2])))
    print("\n%d of %d verdicts right; of %d that fit, all phases equal to the byte in %d, within 0.5 %% in %d" % (right, len(truth), fitting, same, close))
    return 0


if __name__ == "__main__":
    sys.exit(main())
