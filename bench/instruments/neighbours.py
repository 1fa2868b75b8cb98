"""How much a prediction depends on what is not known of a card: cuDNN's choices for neighbouring numbers of multiprocessors, other
clocks, caches and clusters.

    python bench/instruments/neighbours.py PLIMSOLL PYTHON [SCRIPT ...]

Each script of ../programs/cards is predicted on a card and on cards that differ from it in one thing. What is printed is how far the largest sum of
segments, and of blocks, is from the card's, and how large the largest workspace is: the safe number has that once more.
"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from sets import PROGRAMS

CARDS = {
    "rtx4090": {
        "14 multiprocessors fewer": "sm_count = 114",
        "2 fewer": "sm_count = 126",
        "2 more": "sm_count = 130",
        "all of the chip": "sm_count = 144",
        "clock a tenth lower": "clock_mhz = 2270",
        "memory a tenth slower": "memory_clock_mhz = 9450",
        "half the L2": 'l2 = "36MiB"',
    },
    "h200": {
        "even clusters": "gpcs = [18, 18, 16, 16, 16, 16, 16, 16]",
        "114 multiprocessors": "sm_count = 114\ngpcs = [16, 14, 14, 14, 14, 14, 14, 14]",
        "no clusters known": "gpcs = []",
    },
}


def predicted(plimsoll, python, script, gpu, folder):
    out = Path(folder) / "answer.json"
    words = [plimsoll, "predict", "-q", "--steps", "3", "--gpu", gpu, "--json", str(out), "--", python, str(script)]
    subprocess.run(words, cwd=folder, capture_output=True, check=False)
    return json.loads(out.read_text())


def main():
    if sys.argv[1:] in ([], ["--help"]):
        sys.exit(__doc__)
    plimsoll, python, *names = sys.argv[1:]
    scripts = [it for it in sorted((PROGRAMS / "cards").glob("*.py")) if not names or it.stem in names]
    print("| script | card | what is otherwise | reserved | allocated | safe number of the card covers it |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for script in scripts:
            for card, changes in CARDS.items():
                base = predicted(plimsoll, python, script, card, folder)
                room = base["safe_bytes"] - base["peak_device_bytes"] if base["safe_bytes"] else None
                for what, change in changes.items():
                    path = Path(folder) / "card.toml"
                    path.write_text(f'like = "{card}"\nname = "other"\n{change}\n')
                    other = predicted(plimsoll, python, script, str(path), folder)
                    off = [other[it] - base[it] for it in ("peak_reserved_bytes", "peak_allocated_bytes")]
                    shown = [f"{it / 2**20:+.1f} MiB" for it in off]
                    covered = "" if room is None else ("yes" if off[0] <= room else "no")
                    print(f"| {script.stem} | {card} | {what} | {shown[0]} | {shown[1]} | {covered} |", flush=True)


main()
