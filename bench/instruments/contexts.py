"""What processes took beside PyTorch's allocator, as published out-of-memory messages tell it, against what the catalogue derives.

    python bench/instruments/contexts.py PLIMSOLL

A message says what the process holds, what is allocated, and what is reserved and not allocated; the rest is the context, to
10 MiB or so, as the sizes have two decimals. ../results/raw/contexts.jsonl has 49 messages whose card is known by its memory or from the text
around them; runs of several GPUs, whose NCCL is in it, are left out. Few of these programs use convolutions, so two handles of cuDNN
(20 MiB) are taken off what is derived.
"""
import json
import subprocess
import sys
from collections import defaultdict

from sets import RAW

UNITS = {"GiB": 1024, "MiB": 1}


def mib(text):
    number, unit = text.split()
    return float(number) * UNITS[unit]


def main():
    if sys.argv[1:] in ([], ["--help"]):
        sys.exit(__doc__)
    answer = subprocess.check_output([sys.argv[1], "cards", "--json"], text=True)
    cards = {it["id"]: it for it in json.loads(answer)["cards"]}
    seen = defaultdict(list)
    for line in (RAW / "contexts.jsonl").read_text().splitlines():
        it = json.loads(line)
        seen[it["card"]].append(mib(it["process"]) - mib(it["allocated"]) - mib(it["unallocated"]))
    print("| card | processes | seen, MiB | derived, without cuDNN | off by |")
    print("|---|---|---|---|---|")
    n = within = above = 0
    for name, values in seen.items():
        card = cards[name]
        derived = card["context_bytes"] / 2**20 - 20
        off = [it - derived for it in values]
        n += len(off)
        within += sum(abs(it) <= 80 + 10 for it in off)
        above += sum(80 + 10 < it for it in off)
        spread = f"{min(values):.0f} to {max(values):.0f}" if len(values) > 1 else f"{values[0]:.0f}"
        print(f"| {name} | {len(values)} | {spread} | {derived:.0f} | {min(off):+.0f} to {max(off):+.0f} |")
    print(f"\n{within} of {n} within ± 80 MiB (and rounding); {above} above it")


main()
