"""Whether a run on the phantom leaves the user's files as they were, hash by hash.

    python bench/instruments/harm.py --plimsoll target/release/plimsoll --python .venv/bin/python [NAME ...]     48 scripts, about 20 minutes
    python bench/instruments/harm.py ... --command fit       the same under `fit`, which has many trials
    python bench/instruments/harm.py ... --way traced        another way of keeping writes away (mounts, user, traced)
    python bench/instruments/harm.py ... --early             stopped when memory is steady
    python bench/instruments/harm.py ... --user 1000         as an ordinary user (we have to be root)
    python bench/instruments/harm.py --plimsoll x --list     what each script does

Each script (../programs/harm) starts in a fresh copy of the world that harm_world.py builds: a project, a home and a place elsewhere. All of it,
and what the script has in /tmp, /var/tmp and /dev/shm, is hashed; plimsoll runs the script twice, one run after the
other; then it is hashed again. A script is good if

- nothing changed: names, contents, links, modes, owners, times in nanoseconds, attributes, inodes;
- it read back what it wrote: it says `READ BACK OK` at the end, in every run (under `predict`, run to its end);
- every run began with the same world: it says `RUN 8` each time, because count.txt says 7;
- plimsoll left no files in its cache but its bundle, and no process.

Not asked for: that it read back with `--early` and under `fit`, whose `--squeeze` sets a limit that most scripts do not fit into. Access times are not
compared; a change of `ctime` alone is told as "touched" and fails nothing. Scripts may put files into /tmp, /var/tmp and /dev/shm, named `harm-NAME-...`.

One line a script, a table at the end, and a JSON line each in OUT/results.jsonl. The exit code is 1 if one is not good.
"""

import argparse
import ast
import collections
import hashlib
import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sets import HERE, PROGRAMS

# How plimsoll is told which way to keep writes away; `auto` leaves it unset. The one place to change.
WAY = "PLIMSOLL_WRITES_WAY"
WAYS = ("auto", "mounts", "user", "traced")

# Every process of a run carries this in its environment, so that one left behind is found.
MARK = "HARM_BENCH_RUN"

# What harm_world.py writes into count.txt is 7; a script adds one and says the result.
FIRST_RUN = "RUN 8"

OK = "READ BACK OK"
SKIPPED = "SKIPPED:"

# The places outside of the world, where scripts of this bench put files whose names begin like this.
BESIDE = ("/tmp", "/var/tmp", "/dev/shm")


def scripts():
    return {it.stem: it for it in sorted((PROGRAMS / "harm").glob("*.py"))}


def purpose(path):
    return ast.get_docstring(ast.parse(path.read_text())).splitlines()[0]


def one_entry(path):
    """What is compared of a file, a folder or a link."""
    info = os.lstat(path)
    res = {
        "kind": stat.filemode(info.st_mode)[0],
        "mode": oct(stat.S_IMODE(info.st_mode)),
        "owner": f"{info.st_uid}:{info.st_gid}",
        "mtime": info.st_mtime_ns,
        "names": info.st_nlink,
        "inode": info.st_ino,
        # It moves with any change, also with one that was taken back. It is told, and fails nothing.
        "ctime": info.st_ctime_ns,
    }
    if stat.S_ISLNK(info.st_mode):
        res["target"] = os.readlink(path)
        return res
    if stat.S_ISREG(info.st_mode):
        digest = hashlib.sha256()
        with open(path, "rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
        res |= {"size": info.st_size, "contents": digest.hexdigest()}
    try:
        res["attributes"] = {it: os.getxattr(path, it).hex() for it in sorted(os.listxattr(path))}
    except OSError:
        pass
    return res


def tree(top):
    """Every name below a folder and the folder itself, without following links."""
    res = {top: one_entry(top)}
    for folder, names, files in os.walk(top):
        for name in names + files:
            path = os.path.join(folder, name)
            res[path] = one_entry(path)
    return res


def world(folder, name):
    res = tree(str(folder))
    for place in BESIDE:
        for entry in os.scandir(place):
            if entry.name.startswith(f"harm-{name}"):
                res |= tree(entry.path) if entry.is_dir(follow_symlinks=False) else {entry.path: one_entry(entry.path)}
    return res


def clear_beside(name):
    """What an earlier run of this script left outside of its world, if one went through."""
    for place in BESIDE:
        for entry in list(os.scandir(place)):
            if entry.name.startswith(f"harm-{name}-") or entry.name == f"harm-{name}.bin":
                shutil.rmtree(entry.path) if entry.is_dir(follow_symlinks=False) else os.unlink(entry.path)


def changes(before, after, top):
    """One short line for each name that is not as it was, and how many were touched and put back."""
    lines, touched = [], 0
    for path in sorted(before.keys() | after.keys()):
        name = os.fsencode(os.path.relpath(path, top) if path.startswith(str(top)) else path).decode(errors="replace")
        if path not in after:
            lines.append(f"gone: {name}")
        elif path not in before:
            lines.append(f"new: {name}")
        else:
            keys = [it for it in before[path] | after[path] if before[path].get(it) != after[path].get(it)]
            touched += keys == ["ctime"]
            if keys != ["ctime"] and keys:
                lines.append(f"{', '.join(it for it in keys if it != 'ctime')}: {name}")
    return lines, touched


def processes(mark):
    """The processes that carry our mark."""
    res = {}
    for entry in os.listdir("/proc"):
        try:
            if entry.isdigit() and mark in Path("/proc", entry, "environ").read_bytes():
                res[int(entry)] = Path("/proc", entry, "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:80]
        except OSError:
            pass
    return res


def blocks_below(folder):
    """Bytes that the files below a folder take on the disk: holes take none."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(place, name)).st_blocks * 512
            except OSError:
                pass
    return total


def files_below(folder):
    """All files but those that Python keeps beside the agent's modules."""
    paths = {os.path.join(place, name) for place, _, names in os.walk(folder) for name in names}
    return {it for it in paths if not it.endswith(".pyc")}


class Watch(threading.Thread):
    """The most bytes that the cache had on the disk during a run, and the least that was free."""

    def __init__(self, folder):
        super().__init__(daemon=True)
        self.folder, self.most, self.end = folder, 0, threading.Event()

    def run(self):
        while not self.end.wait(1):
            self.most = max(self.most, blocks_below(self.folder))

    def __enter__(self):
        self.first = blocks_below(self.folder)
        self.start()
        return self

    def __exit__(self, *_):
        self.end.set()
        self.join()
        self.most = max(self.most, blocks_below(self.folder)) - self.first


def own_environment(folder, cache, mark, way):
    res = {key: it for key, it in os.environ.items() if not key.startswith(("PLIMSOLL_", "PYTORCH_", "XDG_", "GIT_"))}
    for name in ("CUDA_VISIBLE_DEVICES", "RANK", "WORLD_SIZE", "PYTHONDONTWRITEBYTECODE", "PYTHONPATH", "TMPDIR"):
        res.pop(name, None)
    res |= {"HOME": str(folder / "home"), "SCRATCH": str(folder / "scratch"), "PWD": str(folder / "project")}
    res |= {"PLIMSOLL_CACHE": str(cache), MARK: mark, "HF_HUB_OFFLINE": "1", "GIT_CONFIG_NOSYSTEM": "1"}
    return res if way == "auto" else res | {WAY: way}


def as_user(user, words):
    return words if user is None else ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--", *words]


def command(args, script, out, number):
    """The words of one run of plimsoll; what it writes for us goes beside the world."""
    more = ["--gpu", args.gpu, *args.options.split()]
    if not args.early:
        more.append("--until-exit")
    if args.command == "fit":
        more += ["--plan", str(out / f"plan-{number}.toml")]
        more += ["--limit-reserved", args.squeeze] if args.squeeze != "no" else []
    return [args.plimsoll, args.command, *more, "--json", str(out / f"{number}.json"), "--", args.python, script]


def wait_for_late(mark, seconds):
    """Those that a script left running may write late: their end is awaited, but not long."""
    end = time.time() + seconds
    while (left := processes(mark)) and time.time() < end:
        time.sleep(0.2)
    return left


def one(args, name, path, template, top, cache):
    out = top / name
    folder = out / "world"
    out.mkdir()
    subprocess.run(["cp", "-a", "--reflink=auto", str(template), str(folder)], check=True)
    script = folder / "project" / path.name
    shutil.copyfile(path, script)
    when = 1_700_000_500_000_000_321
    os.utime(script, ns=(when, when))
    os.utime(script.parent, ns=(when, when))
    if args.user is not None:
        os.chown(script, args.user, args.user)
        os.chown(out, args.user, args.user)
    mark = f"{os.getpid()}-{name}"
    environment = own_environment(folder, cache, mark, args.way)
    marked = f"{MARK}={mark}\0".encode()
    clear_beside(name)
    before = world(folder, name)
    res = {"script": name, "way": args.way, "command": args.command, "does": purpose(path), "runs": []}
    lines, touched = [], 0
    for number in range(1, args.runs + 1):
        words = as_user(args.user, command(args, script.name, out, number))
        began = time.time()
        with Watch(cache) as watch:
            try:
                ran = subprocess.run(
                    words, cwd=script.parent, env=environment, stdin=subprocess.DEVNULL, timeout=args.timeout,
                    stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                )
                code, text = ran.returncode, (ran.stdout + b"\n" + ran.stderr).decode(errors="replace")
            except subprocess.TimeoutExpired as error:
                parts = [it or b"" for it in (error.stdout, error.stderr)]
                code, text = "timeout", b"\n".join(parts).decode(errors="replace")
        seconds = time.time() - began
        left = wait_for_late(marked, 5)
        (out / f"{number}.txt").write_text(text)
        began_with = [it.strip() for it in text.splitlines() if it.startswith("RUN ")]
        outcome = None
        if (out / f"{number}.json").exists() and (out / f"{number}.json").stat().st_size:
            outcome = json.loads((out / f"{number}.json").read_text()).get("outcome")
        res["runs"].append({
            "code": code, "outcome": outcome, "seconds": round(seconds, 1), "began_with": began_with,
            "read_back": OK in text, "skipped": SKIPPED in text, "left_running": left, "most_in_cache": watch.most,
        })
        # After each run: a change that the second run takes back is a change.
        lines, touched = changes(before, world(folder, name), folder)
        if lines:
            break
    res |= {"changed": lines, "touched": touched}
    res["problems"] = problems(args, res)
    clear_beside(name)
    if not args.keep and not res["problems"]:
        subprocess.run(["chmod", "-R", "u+rwX", str(folder)], check=False)
        shutil.rmtree(folder, ignore_errors=True)
    return res


def problems(args, res):
    """Why a script is not good, in words; nothing if it is."""
    found = []
    if res["changed"]:
        found.append(f"{len(res['changed'])} changed")
    for number, run in enumerate(res["runs"], 1):
        if run["code"] not in (0, 1) or (run["code"] == 1 and args.command == "predict"):
            found.append(f"run {number} ended with {run['code']}")
        if run["left_running"]:
            found.append(f"run {number} left {len(run['left_running'])} processes")
        if args.command == "predict":
            if not run["read_back"] and not run["skipped"] and not args.early:
                found.append(f"run {number} did not read back")
            if not run["began_with"]:
                found.append(f"run {number} never began")
        # `fit` may show the output of its trials or not; what it shows has to be the first run each time.
        if any(it != FIRST_RUN for it in run["began_with"]):
            found.append(f"run {number} began with {run['began_with']}, not {FIRST_RUN}")
    return found


def prepare(args, top):
    """The world to copy, and a cache that is filled, so that the bundle is unpacked before anything is watched."""
    template = top / "template"
    cache = top / "cache"
    cache.mkdir()
    if args.user is not None:
        top.chmod(0o755)
        for path in (top, cache):
            os.chown(path, args.user, args.user)
    environment = dict(os.environ, HOME=str(top), PLIMSOLL_CACHE=str(cache))
    words = as_user(args.user, [args.python, str(HERE / "harm_world.py"), str(template)])
    done = subprocess.run(words, cwd="/", env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise SystemExit(f"harm_world.py failed:\n{done.stdout[-2000:]}")
    subprocess.run(as_user(args.user, [args.plimsoll, "predict", "--quiet", "--", "true"]), cwd="/", env=environment, capture_output=True)
    return template, cache


def told(res):
    seconds = "+".join(f"{it['seconds']:.0f}" for it in res["runs"])
    verdict = "; ".join(res["problems"]) or ("skipped" if any(it["skipped"] for it in res["runs"]) else "good")
    more = "".join(f"\n      {it}" for it in res["changed"][:8])
    more += f"\n      and {len(res['changed']) - 8} more" if len(res["changed"]) > 8 else ""
    return f"{res['script']:28} {seconds:>8} s  {verdict}{more}"


def table(results):
    print("\n| script | changed | touched | read back | same world | exit codes | cache MiB | good |\n|---|---|---|---|---|---|---|---|")
    for res in results:
        runs = res["runs"]
        back = "skipped" if any(it["skipped"] for it in runs) else f"{sum(it['read_back'] for it in runs)} of {len(runs)}"
        same = all(it == FIRST_RUN for run in runs for it in run["began_with"])
        codes = " ".join(str(it["code"]) for it in runs)
        cells = [len(res["changed"]), res["touched"], back, "yes" if same else "no", codes]
        cells += [max(it["most_in_cache"] for it in runs) >> 20, "**no**" if res["problems"] else "yes"]
        print(f"| {res['script']} | {' | '.join(map(str, cells))} |")
    counts = collections.Counter("not good" if it["problems"] else "good" for it in results)
    print(f"\n{counts['good']} of {len(results)} are good.")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="only these scripts")
    parser.add_argument("--plimsoll", required=True, type=os.path.abspath)
    parser.add_argument("--python", default=sys.executable, type=os.path.abspath)
    parser.add_argument("--command", choices=("predict", "fit"), default="predict")
    parser.add_argument("--way", choices=WAYS, default="auto", help=f"passed as {WAY}")
    parser.add_argument("--early", action="store_true", help="let plimsoll stop when memory is steady: nothing is read back then")
    parser.add_argument("--runs", type=int, default=2, help="how often, one after the other, in one world")
    parser.add_argument("--gpu", default="rtx4090")
    parser.add_argument("--squeeze", default="48MiB", help="`fit` gets this for --limit-reserved, so that it has to search; `no` for the whole card")
    parser.add_argument("--options", default="", help="more options for plimsoll, as one word")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--timeout", type=int, default=300, help="seconds for one run of plimsoll")
    parser.add_argument("--user", type=int, help="run all as this user id, by setpriv")
    parser.add_argument("--out", type=Path, help="where worlds and results go; a new folder if not given")
    parser.add_argument("--keep", action="store_true", help="keep the worlds of good scripts, too")
    parser.add_argument("--list", action="store_true", help="say what there is and end")
    args = parser.parse_intermixed_args()

    there = scripts()
    if unknown := set(args.names) - there.keys():
        raise SystemExit(f"no such script: {', '.join(sorted(unknown))}")
    chosen = {name: there[name] for name in args.names} if args.names else there
    if args.list:
        for name, path in chosen.items():
            print(f"{name:28} {purpose(path)}")
        return 0
    if args.out is not None:
        args.out.mkdir(parents=True, exist_ok=True)
    top = Path(tempfile.mkdtemp(prefix="plimsoll-harm-", dir=args.out))
    print(f"worlds and results: {top}", flush=True)
    template, cache = prepare(args, top)
    kept = files_below(cache)
    results = []
    with ThreadPoolExecutor(args.jobs) as pool, open(top / "results.jsonl", "w") as file:
        for res in pool.map(lambda it: one(args, *it, template, top, cache), chosen.items()):
            results.append(res)
            print(told(res), flush=True)
            print(json.dumps(res), file=file, flush=True)
    table(results)
    left = sorted(files_below(cache) - kept)
    if left:
        print(f"\nLeft in the cache: {len(left)} files, such as {', '.join(left[:3])}")
    return int(any(it["problems"] for it in results) or bool(left))


if __name__ == "__main__":
    sys.exit(main())
