"""Reads snapshots, side by side with what else reads them.

    python bench/instruments/read.py [--events N,N,...] [SNAPSHOT...]

Every SNAPSHOT (a pickle; .xz is unpacked first) and a generated one of each size (`generate.py`) is read by

- `bytes`: a loop that sums the file's bytes, which no reader can beat;
- `decode`: our reader, from the file to the trace in columns;
- `explain`: `plimsoll explain --json`, which reads, replays and judges;
- `pickle.load`: Python's, and nothing after it;
- `trace_plot`: torch's `_memory_viz.py trace_plot`, which makes its page.

Each runs in a process of its own, `--repeat` times, one after the other; the CPU seconds (user and system) are the
least of them, the memory is the most resident. The Python that runs this needs torch for `trace_plot`, which is left out otherwise. GNU time (`apt install time`) tells the memory.
"""

import argparse
import importlib.util
import lzma
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

from sets import HERE, ROOT

LOAD = "import pickle, sys; pickle.load(open(sys.argv[1], 'rb'))"


def measure(command, repeat):
    """(least CPU seconds, most resident bytes) of `command`; None when it fails."""
    seconds, memory = [], []
    # A child of ours would be charged with our own memory, which it has for a moment; GNU time is small.
    with tempfile.NamedTemporaryFile("r") as kib:
        timed = ["time", "--quiet", "--format=%M", f"--output={kib.name}", *command]
        for _ in range(repeat):
            child = subprocess.Popen(timed, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            _, status, usage = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
            if child.returncode != 0:
                return None
            seconds.append(usage.ru_utime + usage.ru_stime)
            memory.append(int(pathlib.Path(kib.name).read_text()) * 1024)
    return min(seconds), max(memory)


def built(*arguments):
    subprocess.run(["cargo", "build", "--quiet", "--release", *arguments], cwd=ROOT, check=True)
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    return target / "release"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", default="200000,1000000,3000000,4000000", help="sizes to generate")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--keep", type=pathlib.Path, help="a folder for the generated files, which are made once")
    parser.add_argument("snapshots", nargs="*", type=pathlib.Path)
    args = parser.parse_args()
    reader = built("--package", "plimsoll-core", "--example", "read_bench") / "examples" / "read_bench"
    plimsoll = built("--package", "plimsoll") / "plimsoll"
    torch = importlib.util.find_spec("torch")
    viz = torch and pathlib.Path(torch.origin).parent / "cuda" / "_memory_viz.py"
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        keep = args.keep or scratch
        files = []
        for path in args.snapshots:
            if path.suffix == ".xz":
                unpacked = scratch / path.stem
                with lzma.open(path) as source, open(unpacked, "wb") as sink:
                    shutil.copyfileobj(source, sink)
                path = unpacked
            files.append((path.stem, path))
        for n in (int(it) for it in args.events.split(",") if it):
            path = keep / f"generated-{n}.pickle"
            if not path.exists():
                subprocess.run([sys.executable, HERE / "generate.py", str(n), path], check=True)
            files.append((f"{n / 1e6:g} M events", path))
        lines = table(files, args.repeat, reader, plimsoll, viz, scratch / "page.html")
    print("\n".join(lines))


def table(files, repeat, reader, plimsoll, viz, page):
    names = ["bytes", "decode", "explain", "pickle.load", "trace_plot"]
    lines = [
        "| file | MB | " + " | ".join(names) + " | pickle.load / decode | trace_plot / explain | decode / bytes | "
        "memory: decode, explain / file |",
        "|---|---|" + "---|" * (len(names) + 4),
    ]
    for name, path in files:
        size = path.stat().st_size
        commands = {
            "bytes": [reader, "bytes", path],
            "decode": [reader, "decode", path],
            "explain": [plimsoll, "explain", "--json", "-", path],
            "pickle.load": [sys.executable, "-c", LOAD, path],
            "trace_plot": viz and [sys.executable, viz, "trace_plot", path, "-o", page],
        }
        found = {it: commands[it] and measure(commands[it], repeat) for it in names}

        def cell(name, found=found):
            return f"{found[name][0]:.2f} s, {found[name][1] / 1e6:.0f} MB" if found[name] else "failed"

        def ratio(one, other, found=found):
            return f"{found[one][0] / found[other][0]:.1f}x" if found[one] and found[other] else "-"

        memory = ", ".join(f"{found[it][1] / size:.2f}x" for it in ("decode", "explain"))
        cells = [name, f"{size / 1e6:.0f}", *map(cell, names)]
        cells += [ratio("pickle.load", "decode"), ratio("trace_plot", "explain"), ratio("decode", "bytes"), memory]
        lines.append("| " + " | ".join(cells) + " |")
        print(lines[-1], file=sys.stderr)
    return lines


if __name__ == "__main__":
    main()
