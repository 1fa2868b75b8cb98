"""On a machine with an H100 or H200: forget every card that was measured, calibrate on the real one, and predict the bench again.

    python bench/instruments/hidden_card.py --plimsoll BINARY --out FOLDER [--python PYTHON] [--seconds 300] [--jobs 16] [--only PART ...]

1. `plimsoll calibrate` with every card forgotten whose context somebody measured. FOLDER/calibrated.toml, FOLDER/raw.json.
2. Three cards are compared, number by number: what is built in, what was calibrated, and what would be derived from the data sheet
   (`derived.toml`: the built-in card without its context, handles and clusters).
3. The operations of calibrate are asked of a phantom of each, and compared with what the real card was asked for.
4. Each of the 45 runs of ../programs/workloads.py that an H200 made is made on the real card, and is predicted with the built-in and with the calibrated card, all
   others forgotten: the same bytes? And is it what the card took? Cases that the time is too short for are left out, and said.
5. `plimsoll verify` of the scripts of ../programs/cards with the calibrated card, and on several cards those of ../programs/ranks under torchrun
   (nothing else runs beside those); derived cards last, as far as there is time.

Prints rows, and writes every number to FOLDER/answer.json.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sets import PROGRAMS, truths

GIB = 2**30
PEAKS = {"allocated": "peak_allocated_bytes", "reserved": "peak_reserved_bytes", "process": "peak_device_bytes", "safe": "safe_bytes"}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plimsoll", required=True)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--seconds", type=float, default=300, help="nothing new is begun after so many")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--only", nargs="*", default=[], help="cases whose name contains one of these")
    parser.add_argument("--ranks", type=int, default=0, help="how many cards take part in what torchrun starts")
    parser.add_argument("--no-real", action="store_true", help="no case runs on the real card")
    parser.add_argument("--id", help="the card's id, where the driver's name does not tell it")
    return parser.parse_args()


class Machine:
    """The program, with and without what is built in."""

    def __init__(self, options, folder):
        self.options, self.folder, self.cards = options, folder, folder / "cards"
        self.cards.mkdir()
        self.empty = folder / "none"
        self.empty.mkdir()
        known = json.loads(self.plimsoll("cards", "--json").stdout)["cards"]
        self.measured = [it["id"] for it in known if it["provenance"]["context"] == "measured"]
        self.id = options.id or next(it["id"] for it in known if it["name"] == driver_name())
        self.built_in = self.page(self.id)

    def environment(self, forgetful=False):
        res = dict(os.environ, PLIMSOLL_PYTHON=self.options.python, PLIMSOLL_CARDS=str(self.cards if forgetful else self.empty))
        if forgetful:
            res["PLIMSOLL_FORGET_CARDS"] = ",".join(self.measured)
        return res

    def plimsoll(self, *words, forgetful=False, extra=None):
        command = [self.options.plimsoll, *map(str, words)]
        return subprocess.run(command, env=self.environment(forgetful) | (extra or {}), capture_output=True, text=True)

    def page(self, name, forgetful=False):
        return json.loads(self.plimsoll("cards", name, "--json", forgetful=forgetful).stdout)


def driver_name():
    command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    return subprocess.run(command, capture_output=True, text=True).stdout.splitlines()[0]


def derived(machine):
    """The card as a data sheet has it, so that all else follows from its chip."""
    it = machine.built_in
    lines = {
        "name": it["name"], "chip": "GH100", "memory": it["total_bytes"], "sm_count": it["sm_count"], "l2": it["l2_bytes"],
        "clock_mhz": it["clock_khz"] // 1000, "memory_clock_mhz": it["memory_clock_khz"] // 1000, "memory_bus_bits": it["memory_bus_bits"],
    }
    path = machine.options.out / "derived.toml"
    path.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in lines.items()))
    return path


def operations(machine, card, forgetful):
    """What a phantom of the card is asked for by calibrate's operations."""
    agent = machine.plimsoll("agent").stdout.strip()
    out = machine.folder / f"{Path(card).stem}-{forgetful}.json"
    script = machine.folder / "survey.py"
    script.write_text("import sys\nfrom plimsoll_agent.calibrate import card\ncard.main(sys.argv[1], False)\n")
    words = ("predict", "-q", "--until-exit", "--writes", "through", "--gpu", card, "--", machine.options.python, script, out)
    ran = machine.plimsoll(*words, forgetful=forgetful, extra={"PYTHONPATH": agent})
    return json.loads(out.read_text())["operations"] if out.exists() else {"failed": ran.stderr[-300:]}


def predicted(machine, case, card, forgetful):
    name = f"{case['name']}-{Path(card).stem}-{forgetful}"
    case_path, report, out = (machine.folder / (name + end) for end in (".case", ".report", ".out"))
    case_path.write_text(json.dumps(case))
    extra = {"PYTORCH_CUDA_ALLOC_CONF": case["alloc_conf"]} if case.get("alloc_conf") else {}
    words = ("predict", "--gpu", card, "--until-exit", "--json", report, "--", machine.options.python, PROGRAMS / "workloads.py", case_path, out)
    ran = machine.plimsoll(*words, forgetful=forgetful, extra=extra)
    try:
        it = json.loads(report.read_text())
        return {key: it[name] for key, name in PEAKS.items()} | {"oom": it["oom"] is not None}
    except (OSError, ValueError, KeyError) as error:
        return {"failed": f"{error!r} {ran.stderr[-200:]}"}


class Room:
    """So many bytes of the card are handed out, so that real runs do not disturb each other."""

    def __init__(self, all_of_it):
        self.left, self.changed = all_of_it, threading.Condition()

    def take(self, bytes):
        with self.changed:
            self.changed.wait_for(lambda: bytes <= self.left)
            self.left -= bytes

    def give(self, bytes):
        with self.changed:
            self.left += bytes
            self.changed.notify_all()


def real(machine, case, room, expected):
    case_path, out = (machine.folder / (case["name"] + end) for end in (".real", ".truth"))
    case_path.write_text(json.dumps(case))
    extra = {"PYTORCH_CUDA_ALLOC_CONF": case["alloc_conf"]} if case.get("alloc_conf") else {}
    room.take(expected)
    try:
        ran = subprocess.run([machine.options.python, str(PROGRAMS / "workloads.py"), case_path, out], env=machine.environment() | extra, capture_output=True, text=True)
    finally:
        room.give(expected)
    try:
        it = json.loads(out.read_text())
    except (OSError, ValueError):
        return {"failed": ran.stderr[-300:]}
    process = (it.get("nvml_process") or [None])[0]
    return {"allocated": it["max_allocated"], "reserved": it["max_reserved"], "process": process if process and it["max_reserved"] <= process else None, "oom": "oom" in it}


def verified(machine, script, launcher=()):
    report = machine.folder / (script.stem + ".verified")
    words = ("verify", "--json", report, "--", machine.options.python, *launcher, script)
    ran = machine.plimsoll(*words, forgetful=True)
    if launcher:
        print(ran.stdout, flush=True)
    try:
        return json.loads(report.read_text())
    except (OSError, ValueError):
        return {"failed": ran.stderr[-300:]}


def main():
    options = arguments()
    began = time.monotonic()
    options.out.mkdir(parents=True, exist_ok=True)
    is_late = lambda: options.seconds < time.monotonic() - began
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(options.jobs) as pool:
        machine = Machine(options, Path(folder))
        answer = {"card": machine.id, "forgotten": machine.measured, "built_in": machine.built_in}
        save = lambda: (options.out / "answer.json").write_text(json.dumps(answer, indent=1))
        ran = machine.plimsoll("calibrate", "--raw", options.out / "raw.json", forgetful=True)
        answer["calibrate"] = {"seconds": round(time.monotonic() - began, 1), "said": ran.stdout, "errors": ran.stderr, "exit": ran.returncode}
        print(f"calibrate: {answer['calibrate']['seconds']} s\n{ran.stdout}{ran.stderr}", flush=True)
        save()
        (file,) = machine.cards.glob("*.toml")
        (options.out / "calibrated.toml").write_text(file.read_text())
        calibrated = machine.page(machine.built_in["name"], forgetful=True)
        data_sheet = derived(machine)
        answer["calibrated"] = calibrated
        other = {key: [machine.built_in[key], value] for key, value in calibrated.items() if value != machine.built_in[key]}
        print("built in, and calibrated otherwise:", {key: it for key, it in other.items() if key != "provenance"}, flush=True)

        raw = json.loads((options.out / "raw.json").read_text())
        answer["ranks"] = {}
        for script in sorted((PROGRAMS / "ranks").glob("*.py")) if 2 <= options.ranks else []:
            launcher = ("-m", "torch.distributed.run", "--nproc-per-node", options.ranks)
            answer["ranks"][script.stem] = verified(machine, script, launcher)
            print(f"verify {script.stem}, {options.ranks} ranks: {json.dumps(answer['ranks'][script.stem])}", flush=True)
            save()
        asked = {name: pool.submit(operations, machine, card, forgetful) for name, (card, forgetful) in {"built in": (machine.id, False), "calibrated": (calibrated["id"], True), "derived": (str(data_sheet), True)}.items()}
        known = truths("workloads")
        cases = [{"name": name} | it["case"] for name, it in known.items()]
        cases = [it for it in cases if not options.only or any(part in it["name"] for part in options.only)]
        room = Room(int(machine.built_in["total_bytes"] * 0.9))

        def size(case):
            return known[case["name"]]["max_reserved"] + GIB

        def task(kind, it):
            if is_late():
                return None
            if kind == "real" and options.no_real:
                return None
            if kind == "real":
                return real(machine, it, room, size(it))
            if kind == "verify":
                return verified(machine, it)
            card, forgetful = {"built in": (machine.id, False), "calibrated": (calibrated["id"], True), "derived": (str(data_sheet), True)}[kind]
            return predicted(machine, it, card, forgetful)

        verifies = {it.stem: pool.submit(task, "verify", it) for it in sorted((PROGRAMS / "cards").glob("*.py"))}
        kinds = ("built in", "calibrated", "real")
        rows = {case["name"]: {kind: pool.submit(task, kind, case) for kind in kinds} for case in cases}
        for case in cases:
            rows[case["name"]]["derived"] = pool.submit(task, "derived", case)

        answer["operations"] = {name: it.result() for name, it in asked.items()} | {"real": raw["operations"]}
        for name in asked:
            alike = sum(answer["operations"][name].get(key) == value for key, value in raw["operations"].items())
            print(f"operations: {name} asks for the same bytes as the card in {alike} of {len(raw['operations'])}", flush=True)
        answer["verify"] = {}
        for name, it in verifies.items():
            answer["verify"][name] = it.result()
            print(f"verify {name}: {json.dumps(it.result())}", flush=True)
        answer["cases"] = {}
        print(f"{'case':36}{'calibrated as built in':>24}{'off the card, %: allocated':>28}{'reserved':>10}{'process':>10}", flush=True)
        for name, row in rows.items():
            done = answer["cases"][name] = {kind: it.result() for kind, it in row.items()}
            save()
            built_in, ours, card = (done[it] or {} for it in kinds)
            if not built_in or not ours:
                continue
            same = "the same bytes" if built_in == ours and "failed" not in ours else "OTHER"
            off = ["-" if not card.get(key) or not ours.get(key) else f"{100 * (ours[key] / card[key] - 1):+.3f}" for key in ("allocated", "reserved", "process")]
            print(f"{name:36}{same:>24}{off[0]:>28}{off[1]:>10}{off[2]:>10}" + "".join(f"  {kind}: {it['failed'][-120:]!r}" for kind, it in done.items() if it and "failed" in it), flush=True)
        save()
        print(f"{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
