"""Scripts for several GPUs, written as people write them and run once on two H200s, against what a phantom says of them.

    python bench/accuracy/spread.py --plimsoll target/release/plimsoll --python PYTHON --keep FOLDER [NAME...]

`h200-spread/scripts` has the scripts, `h200-spread/truth.jsonl` what PyTorch's allocator counted in each process until it
ended (a rank and a device a line). The error is that of the nearer of the two orders (docs/distributed.md) for rank 0, and
for every rank where a script starts its own. Reports that FOLDER has are not made again.
"""

import argparse
import json
import os
import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent / "h200-spread"
TORCHRUN = "acc ddp_cifar dlrm cp hsdp_dcp megatron mixed moco moe muon ring titan zero3 fsdp1_t5".split()
JOBS = {name: [f"{name}.py"] for name in TORCHRUN}
JOBS |= {f"pipe_{it}": ["pipe.py", "--schedule", it] for it in ("GPipe", "1F1B", "Interleaved1F1B", "LoopedBFS")}
JOBS |= {f"hooks_{it}": ["hooks.py", it] for it in ("batched", "powersgd", "fp16", "static")}
JOBS |= {f"trainer_{it}": ["trainer_fsdp.py", "--mode", it] for it in ("fsdp", "fsdp2", "ddp")}
JOBS |= {
    "titan_tp1": ["titan.py", "--tp", "1"],
    "titan_compile": ["titan.py", "--tp", "1", "--compile"],
    "fsdp1_t5_grad_op": ["fsdp1_t5.py", "--strategy", "SHARD_GRAD_OP"],
}
# These start their processes themselves, or need none.
OWN = {
    "spawn_join": ["spawn_join.py"],
    "lit_ddp": ["lit.py", "--strategy", "ddp"],
    "lit_fsdp": ["lit.py", "--strategy", "fsdp"],
    "lit_unused": ["lit.py", "--strategy", "ddp_find_unused_parameters_true", "--precision", "32-true"],
    "dmap": ["dmap.py"],
    "share": ["share.py"],
}
SIZES = ("allocated", "reserved")


def report(name, args):
    path = Path(args.keep) / f"{name}.json"
    if not path.exists():
        script, *words = (JOBS | OWN)[name]
        launcher = [] if name in OWN else ["-m", "torch.distributed.run", "--nproc-per-node", "2"]
        gpus = ["--gpus", "1" if name == "share" else "2"] if name in OWN else []
        options = ["--gpu", "h200", *gpus, "--until-exit", "--quiet", "--json", str(path.resolve())]
        command = [args.plimsoll, "predict", *options, "--", args.python, *launcher, str(HERE / "scripts" / script), *words]
        env = os.environ | {"HF_HUB_OFFLINE": "1"}
        subprocess.run(command, cwd=args.keep, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return json.loads(path.read_text()) if path.exists() else None


def errors(said, truth):
    """By size, the error of the nearest order in percent: of the rank and device of `truth`, or of the one that ran."""
    own = [it for it in said.get("ranks", []) if it["rank"] in (None, truth["rank"]) and it["device"] == truth["device"]]
    result = {}
    for size in SIZES:
        if own:
            orders = [it[f"{size}_bytes"] for it in own]
        else:
            orders = [said[f"peak_{size}_bytes"]]
            orders += [said["late"][f"{size}_bytes"]] if said.get("late") else []
        result[size] = min((100 * (it / truth[f"max_{size}"] - 1) for it in orders), key=abs)
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plimsoll", required=True)
    parser.add_argument("--python", required=True)
    parser.add_argument("--keep", required=True)
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    truths = [json.loads(line) for line in (HERE / "truth.jsonl").read_text().splitlines()]
    print("| script | rank | allocated | reserved | reserved there | safe covers |\n|---|---|---|---|---|---|")
    for name in args.names or sorted(JOBS | OWN):
        said = report(name, args)
        if said is None:
            print(f"| {name} | | no report | | | |")
            continue
        for truth in (it for it in truths if it["name"] == name):
            if truth["rank"] and not said.get("ranks"):
                continue
            off = errors(said, truth)
            reserved = truth["max_reserved"]
            covers = "yes" if reserved + (760 << 20) <= said["safe_bytes"] else "NO"
            print(f"| {name} | {truth['rank']} | {off['allocated']:+.3f} % | {off['reserved']:+.3f} % | {reserved} | {covers} |")


if __name__ == "__main__":
    main()
