"""What a serving engine planned on a phantom, beside what it planned on a card.

    python bench/instruments/serving.py PHANTOM CARD

Two folders, with a JSON file for each job, as a job writes it: whether it ended (`ok`, else `error`), blocks of the key-value cache
(`worker.num_gpu_blocks` of vLLM, `caches[].num_blocks` of transformers) or tokens (`max_total_num_tokens` of SGLang), and PyTorch's peaks
after each stage (`stages`). Prints a row for each job of both: blocks, and PyTorch's reserved peak at the end in MiB.
"""

import json
import sys
from pathlib import Path

PEAK = "reserved_bytes.all.peak"


def blocks(job):
    if job.get("caches"):
        return sum(it["num_blocks"] for it in job["caches"])
    return (job.get("worker") or {}).get("num_gpu_blocks") or job.get("max_total_num_tokens") or 0


def peak(job):
    stages = (job.get("worker") or job).get("stages") or [{}]
    return stages[-1].get(PEAK, 0)


def difference(phantom, card):
    if not (phantom["ok"] and card["ok"]):
        both = not phantom["ok"] and not card["ok"]
        return "both refuse" if both else "only one ends: " + (phantom.get("error") or card.get("error"))[:60]
    ours, theirs = (blocks(phantom), blocks(card)) if blocks(card) else (peak(phantom), peak(card))
    return "equal" if ours == theirs else f"{(ours - theirs) / theirs:+.2%}"


def main(phantom, card):
    print("| job | blocks, phantom | card | difference | reserved, phantom / card |\n|---|---|---|---|---|")
    for path in sorted(Path(card).glob("*.json")):
        ours = Path(phantom) / path.name
        if not ours.exists():
            continue
        a, b = json.loads(ours.read_text()), json.loads(path.read_text())
        print(f"| {path.stem} | {blocks(a):,} | {blocks(b):,} | {difference(a, b)} | {peak(a) / 2**20:,.0f} / {peak(b) / 2**20:,.0f} |")


if __name__ == "__main__":
    main(*sys.argv[1:3])
