"""Jobs on two and four H200s (../results/raw/several-h200.jsonl) against one imagined rank of them.

    python bench/instruments/several.py --plimsoll target/release/plimsoll --python PYTHON --keep FOLDER [NAME...]

A row a kind of ../programs/job.py and a number of GPUs: the peaks that real ranks and runs had, how far the nearest of the
phantom's two orders is from each, at worst, and whether `safe_bytes` covers the worst process. Ranks of a pipeline are
different programs: all of them run, and each is compared with its own. Reports that FOLDER has are not made again.
"""

import argparse
import json
import socket
import subprocess
from pathlib import Path

from sets import PROGRAMS, RAW

ONE_PROCESS = {"data-parallel", "data-parallel-amp", "device-map", "device-map-generate", "two-devices-by-hand"}
SIZES = ("allocated", "reserved")


def free_port():
    """Other programs of the machine may have torchrun's own."""
    with socket.socket() as it:
        it.bind(("127.0.0.1", 0))
        return str(it.getsockname()[1])


def report(name, world, args):
    path = Path(args.keep) / f"{name}.{world}.report.json"
    if not path.exists():
        script = [str(PROGRAMS / "job.py"), name, str(path.with_suffix(""))]
        ranks = ["--world-size", str(world)]
        if name in ONE_PROCESS:
            ranks = ["--gpus", str(world)]
        elif "pipeline" in name:
            # Each rank writes its account of the second order beside the report.
            ranks, script = ["--all-ranks", "--writes", "through"], ["-m", "torch.distributed.run", "--nproc-per-node", str(world), "--master-port", free_port(), *script]
        options = ["--gpu", "h200", *ranks, "--until-exit", "--quiet", "--json", str(path)]
        subprocess.run(
            [args.plimsoll, "predict", *options, "--", args.python, *script], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
    return json.loads(path.read_text())


def orders(said):
    """What the rank that ran needs in either order, by the name of the size."""
    late = said.get("late") or {it + "_bytes": said[f"peak_{it}_bytes"] for it in SIZES}
    return [{it: said[f"peak_{it}_bytes"] for it in SIZES}, {it: late[it + "_bytes"] for it in SIZES}]


def orders_of_one(said, rank, prefix):
    """Those of one of several ranks: the report has the first order, the rank's own account is of the second."""
    own = max((it for it in said["ranks"] if it["rank"] == rank), key=lambda it: it["reserved_bytes"])
    account = json.loads(Path(f"{prefix}.rank{rank}.json").read_text())
    return [{it: own[it + "_bytes"] for it in SIZES}, {it: account["max_" + it][0] for it in SIZES}]


def off(said, truth):
    """The error of the nearest of `said`, in percent."""
    return min((100 * (it / truth - 1) for it in said), key=abs)


def row(name, world, truths, said, prefix):
    worst, differ = {}, False
    for size in SIZES:
        errors = []
        for truth in truths:
            both = orders_of_one(said, truth["rank"], prefix) if "pipeline" in name else orders(said)
            differ |= both[0]["reserved"] != both[1]["reserved"]
            # The device that needed most, where one process has several.
            errors.append(off([it[size] for it in both], max(truth["max_" + size])))
        worst[size] = max(errors, key=abs)
    beyond = [max(truth["beyond_reserved"]) >> 20 for truth in truths]
    needs = max(max(truth["max_reserved"]) + max(truth["beyond_reserved"]) for truth in truths)
    ours = said["peak_device_bytes"] - said["peak_reserved_bytes"] >> 20
    return (
        f"| {name} | {world} | {len(truths)} | {worst['allocated']:+.3f} % | {worst['reserved']:+.3f} % "
        f"| {'yes' if differ else 'no'} | {min(beyond)}-{max(beyond)}, {ours} | {'yes' if needs <= said['safe_bytes'] else 'NO'} |"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plimsoll", default="plimsoll")
    parser.add_argument("--python", default="python3")
    parser.add_argument("--keep", required=True)
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    truths = {}
    for line in (RAW / "several-h200.jsonl").read_text().splitlines():
        it = json.loads(line)
        if "facts" not in it and (not args.names or it["name"] in args.names):
            truths.setdefault((it["name"], it["world"]), []).append(it)
    print("| job | GPUs | ranks seen | allocated | reserved | orders differ | outside reserved, truth and ours, MiB | safe covers |")
    print("|---|---|---|---|---|---|---|---|")
    for (name, world), of_job in sorted(truths.items()):
        said = report(name, world, args)
        if said["outcome"] == "script_failed":
            print(f"| {name} | {world} | {len(of_job)} | did not run | | | | |", flush=True)
        else:
            print(row(name, world, of_job, said, Path(args.keep) / f"{name}.{world}.report"), flush=True)


if __name__ == "__main__":
    main()
