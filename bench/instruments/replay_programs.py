"""Random programs on the real allocator, replayed: every event, and every statistic that PyTorch keeps.

    PLIMSOLL_PYTHON=... python bench/instruments/replay_programs.py [--programs N] [--flags] [FOLDER]

Runs the programs 0 to N of tests/replay/programs.py on the phantom, each in a process of its own, and replays each
recording (three of each program, two of them from its middle). Half of the programs keep their pools to the end,
where a recording of torch 2.11 names them. Recordings with pools or graphs are replayed a second time with the pool of
each request in its event, as torch 2.12 writes it: what disagrees then is the model, and what disagrees only without it is
what the replay made of a recording that names no pools.
"""

import argparse
import collections
import json
import pathlib
import pickle
import subprocess
import sys
import tempfile

from sets import ROOT

sys.path.insert(0, str(ROOT / "tests"))
from harness import PYTHON, Unpacked  # noqa: E402

CARD = ["--gpu", "h200", "--memory", "2GiB", "--gpus", "2"]
PROGRAMS = ROOT / "tests" / "replay" / "programs.py"
AT_ONCE = 40


def record(folder, n, flags):
    """Runs the programs."""
    unpacked = Unpacked.ask(folder / "cache", CARD)
    for first in range(0, n, AT_ONCE):
        last = min(first + AT_ONCE, n)
        options = [*(["--named-pools"] if first < n // 2 else []), *(["--flags"] if flags else [])]
        environment = unpacked.environment(folder / f"session-{first}")
        words = [PYTHON, PROGRAMS, folder, str(first), str(last), *options]
        # torch itself aborts when the capture of a graph runs out of memory at the wrong moment; the others go on.
        code = subprocess.run(words, env=environment, stderr=subprocess.DEVNULL).returncode
        if code:
            print(f"a program between {first} and {last} did not end well", file=sys.stderr)
        print(f"{last} of {n} programs recorded", file=sys.stderr)


def name_pools(path, folder):
    """Writes the recording with the pool of every event, from what the program wrote beside it."""
    known = json.loads(path.with_suffix(".json").read_text())
    snapshot = pickle.loads(path.read_bytes())
    for device, events in enumerate(snapshot["device_traces"]):
        asked = collections.deque(it for it in known["asked"] if it[0] == device and it[2])
        live, segments, gained = {}, [], []
        for event in events:
            action, address, size = event["action"], event.get("addr"), event.get("size")
            pool = (0, 0)
            if action in ("alloc", "oom"):
                wanted = [address, size] if action == "alloc" else [None, asked[0][2] if asked else None]
                # The first two bytes of a graph are torch's own request, to the default pool.
                if asked and asked[0][1:3] == wanted:
                    name = asked.popleft()[3]
                    # A graph that failed has no name; one that nothing else has.
                    pool = (0, 0) if name is None else (0, 10**6 + name[1]) if name[0] == "failed" else tuple(name)
                if action == "alloc":
                    # What a pool serves when nothing else does, was asked of the default one.
                    served = next((it[2] for it in reversed(segments) if it[0] <= address < it[1]), pool)
                    pool = pool if gained else served
                    live[address] = pool
                for it in gained:
                    it["pool_id"] = pool
                    segments.append((it["addr"], it["addr"] + it["size"], pool))
                gained = []
            elif action in ("segment_alloc", "segment_map"):
                gained.append(event)
            elif action in ("segment_free", "segment_unmap"):
                pool = next((it[2] for it in reversed(segments) if it[0] <= address < it[1]), pool)
                pieces = [(it[0], min(it[1], address), it[2]) for it in segments]
                pieces += [(max(it[0], address + size), it[1], it[2]) for it in segments]
                segments = [it for it in pieces if it[0] < it[1]]
            elif action in ("free_requested", "free_completed"):
                pool = live.get(address, pool)
            event["pool_id"] = pool
    (folder / path.name).write_bytes(pickle.dumps(snapshot, protocol=2))
    (folder / path.with_suffix(".json").name).write_text(json.dumps(known))


def replayed(files):
    command = ["cargo", "run", "--quiet", "--release", "--package", "plimsoll-core", "--example", "replay_bench", "--"]
    for first in range(0, len(files), 300):
        out = subprocess.run([*command, *files[first : first + 300]], cwd=ROOT, check=True, capture_output=True, text=True)
        yield from map(json.loads, out.stdout.splitlines())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--flags", action="store_true", help="pools that never split, or serve when nothing else does")
    parser.add_argument("folder", nargs="?", type=pathlib.Path, help="recordings that are there already")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = (args.folder or pathlib.Path(scratch)).resolve()
        if not args.folder:
            record(folder, args.programs, args.flags)
        files = sorted(folder.glob("*.pickle"))
        with_names = pathlib.Path(scratch) / "with-names"
        with_names.mkdir()
        for path in files:
            beside = json.loads(path.with_suffix(".json").read_text())
            if beside["pools"] or beside["graphs"]:
                name_pools(path, with_names)
        rows = list(replayed(files + sorted(with_names.glob("*.pickle"))))
        known = {row["path"]: json.loads(pathlib.Path(row["path"]).with_suffix(".json").read_text()) for row in rows}
    groups = collections.defaultdict(collections.Counter)
    for row in rows:
        truth = known[row["path"]]
        stats = truth["stats"].get(str(row["device"]))
        if stats is None:
            continue
        wrong = {key for key, it in row["stats"].items() if key in stats and stats[key] != it} - {"num_sync_all_streams"}
        retries = "num_alloc_retries" in wrong
        gap = row["free_peak_reserved"] - row["peak_reserved"]
        if not (truth["pools"] or truth["graphs"]):
            pools = "no pools"
        elif pathlib.Path(row["path"]).parent == with_names:
            pools = "pools, named in every event"
        else:
            pools = "pools, kept to the end" if truth["keeps_pools"] else "pools, gone and unnamed"
        group = groups[(pools, "stacks" if truth["stacks"] else "no stacks")]
        group["recordings"] += 1
        group["events"] += row["events"]
        group["mismatches"] += row["mismatches"]
        group["clean"] += row["mismatches"] == 0
        group["statistics"] += not wrong - {"num_alloc_retries"}
        group["retries"] += not retries
        group["what-if"] += gap == 0
        if row["mismatches"] or wrong or gap:
            print(
                pathlib.Path(row["path"]).stem, f"device {row['device']}", f"mismatches {row['mismatches']}", row["first_mismatch"],
                f"statistics {sorted(wrong)[:3]}", f"what-if {gap:+d}", truth["settings"] or "(no settings)",
            )
    columns = ["recordings", "events", "mismatches", "clean", "statistics", "retries", "what-if"]
    lines = [
        "| programs | recordings | events | mismatches | recordings without any | statistics equal | retries equal | what-if peak equal |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for (pools, stacks), group in sorted(groups.items()):
        lines.append(f"| {pools}, {stacks} | " + " | ".join(str(group[it]) for it in columns) + " |")
    n_programs = len({pathlib.Path(path).stem.split("-")[0] for path in known})
    print("\n".join([f"{n_programs} programs.", "", *lines]))


if __name__ == "__main__":
    main()
