"""Jobs on two H200s (h200-several/runs.jsonl) against one imagined rank of them.

    python bench/accuracy/several.py --plimsoll target/release/plimsoll --python PYTHON --keep FOLDER [NAME...]

A row a kind of distributed.py: the peaks that real ranks and runs had, how far the nearest of the phantom's two orders is
from each, at worst, and whether `safe_bytes` covers the worst process. Reports that FOLDER has are not made again.
"""

import argparse
import json
import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent
ONE_PROCESS = {"data-parallel", "device-map", "two-devices-by-hand"}


def report(name, args):
    path = Path(args.keep) / f"{name}.rank0.report.json"
    if not path.exists():
        ranks = ["--gpus", "2"] if name in ONE_PROCESS else ["--world-size", "2"]
        options = ["--gpu", "h200", *ranks, "--until-exit", "--quiet", "--json", str(path)]
        script = [args.python, str(HERE / "distributed.py"), name, str(path.with_suffix(""))]
        subprocess.run([args.plimsoll, "predict", *options, "--", *script], stdout=subprocess.DEVNULL, check=True)
    return json.loads(path.read_text())


def off(said, truth):
    """The error of the nearest of `said`, in percent."""
    return min((100 * (it / truth - 1) for it in said), key=abs)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--plimsoll", default="plimsoll")
    parser.add_argument("--python", default="python3")
    parser.add_argument("--keep", required=True)
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    rows = [json.loads(line) for line in (HERE / "h200-several" / "runs.jsonl").read_text().splitlines()]
    rows = [it for it in rows if "facts" not in it and (not args.names or it["name"] in args.names)]
    print("| job | ranks seen | allocated | reserved | orders differ | outside reserved, truth and ours, MiB | safe covers |")
    print("|---|---|---|---|---|---|---|")
    for name in sorted({it["name"] for it in rows}):
        said = report(name, args)
        # The device that needed most, where one process has several; the stage of the rank that runs, in a pipeline.
        ranks = [it for it in rows if it["name"] == name and ("pipeline" not in name or it["rank"] == 0)]
        both = [{key: said[f"peak_{key}_bytes"] for key in ("allocated", "reserved", "device")}]
        if said.get("late"):
            both.append({key: said["late"][f"{key}_bytes"] for key in ("allocated", "reserved", "device")})
        worst = {}
        for key in ("allocated", "reserved"):
            errors = [off([it[key] for it in both], max(truth["max_" + key])) for truth in ranks]
            worst[key] = max(errors, key=abs)
        beyond = [max(truth["beyond_reserved"]) >> 20 for truth in ranks]
        needs = max(max(truth["max_reserved"]) + max(truth["beyond_reserved"]) for truth in ranks)
        ours = both[0]["device"] - both[0]["reserved"] >> 20
        print(
            f"| {name} | {len(ranks)} | {worst['allocated']:+.3f} % | {worst['reserved']:+.3f} % "
            f"| {'yes' if len({it['reserved'] for it in both}) == 2 else 'no'} "
            f"| {min(beyond)}-{max(beyond)}, {ours} | {'yes' if needs <= said['safe_bytes'] else 'NO'} |"
        )


if __name__ == "__main__":
    main()
