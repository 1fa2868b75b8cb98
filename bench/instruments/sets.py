"""The programs that were measured on a GPU, and those that were not, as commands: what `accuracy.py`, `same.py` and `versions.py` go through.

A set is a folder or a file of `../programs`; what an H200 took is in `../results/raw/SET-h200.json`.
"""

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
PROGRAMS, RAW, ROOT = HERE.parent / "programs", HERE.parent / "results" / "raw", HERE.parents[1]
PLIMSOLL = os.path.abspath(os.environ.get("PLIMSOLL_BIN", ROOT / "target" / "release" / "plimsoll"))
COUNTED = HERE / "counted.py"
SETS = ("workloads", "montecarlo", "kinds", "values", "spread", "people", "loops", "snippets")
# Programs that are several; KIND tells them which.
SEVERAL = {
    "ctc_sum_fp16": ("ctc_sum", "ctc_mean", "ctc_sum_over_batch"),
    "entropy_fp16": ("classes_sum", "classes_mean", "language_sum", "language_mean", "language_sum_over_tokens"),
    "speech_lengths": ("speech_lengths", "speech_expanded"),
}
TORCHRUN = "acc ddp_cifar dlrm cp hsdp_dcp megatron mixed moco moe muon ring titan zero3 fsdp1_t5".split()
SPREAD = {name: [f"{name}.py"] for name in TORCHRUN}
SPREAD |= {f"pipe_{it}": ["pipe.py", "--schedule", it] for it in ("GPipe", "1F1B", "Interleaved1F1B", "LoopedBFS")}
SPREAD |= {f"hooks_{it}": ["hooks.py", it] for it in ("batched", "powersgd", "fp16", "static")}
SPREAD |= {f"trainer_{it}": ["trainer_fsdp.py", "--mode", it] for it in ("fsdp", "fsdp2", "ddp")}
SPREAD |= {
    "titan_tp1": ["titan.py", "--tp", "1"],
    "titan_compile": ["titan.py", "--tp", "1", "--compile"],
    "fsdp1_t5_grad_op": ["fsdp1_t5.py", "--strategy", "SHARD_GRAD_OP"],
}
# These start their processes themselves, or need none.
SPREAD_ALONE = {
    "spawn_join": ["spawn_join.py"],
    "lit_ddp": ["lit.py", "--strategy", "ddp"],
    "lit_fsdp": ["lit.py", "--strategy", "fsdp"],
    "lit_unused": ["lit.py", "--strategy", "ddp_find_unused_parameters_true", "--precision", "32-true"],
    "dmap": ["dmap.py"],
    "share": ["share.py"],
}


def on_phantom(plimsoll, card):
    """The environment in which a process sees a phantom, and no agent."""
    sys.path.insert(0, str(ROOT / "tests"))
    os.environ.setdefault("PLIMSOLL_BIN", str(plimsoll))
    from harness import Unpacked

    folder = Path(tempfile.mkdtemp())
    unpacked = Unpacked.ask(folder / "cache", ("--gpu", card))
    conf = folder / "card.conf"
    conf.write_text(unpacked.conf)
    return {"LD_PRELOAD": unpacked.preload, "LD_LIBRARY_PATH": unpacked.lib, "PLIMSOLL_PHANTOM_CONF": str(conf)}


class Program(NamedTuple):
    set: str
    name: str
    words: list  # Behind the Python; OUT is the file that it writes, CASE the one that it reads.
    truth: dict | None = None
    case: dict | None = None
    environment: dict = {}
    options: tuple = ("--until-exit",)  # Of `predict`.

    def command(self, folder, out):
        """The words with files in a folder."""
        path = Path(folder, f"{self.name}.case")
        if self.case:
            path.write_text(json.dumps(self.case | {"name": self.name}))
        return [str({"OUT": out, "CASE": path}.get(it, it)) for it in self.words]


def truths(name):
    path = RAW / f"{name}-h200.json"
    return json.loads(path.read_text()) if path.exists() else {}


def programs(*sets, steps=None):
    """All of these sets. With `steps`, trainings of people's are ended after so many, and counted."""
    for name in sets:
        yield from _cases(name) if name in ("workloads", "montecarlo") else _kinds() if name == "kinds" else _values() if name == "values" else _spread() if name == "spread" else _scripts(name, steps)


def _cases(name):
    for case, truth in truths(name).items():
        words = truth["case"]
        environment = {"PYTORCH_CUDA_ALLOC_CONF": words["alloc_conf"]} if words.get("alloc_conf") else {}
        yield Program(name, case, [PROGRAMS / "workloads.py", "CASE", "OUT"], truth, words, environment)


def _kinds():
    for name, truth in truths("kinds").items():
        yield Program("kinds", name, [COUNTED, "OUT", PROGRAMS / "kind.py", name], truth)


def _values():
    known = truths("values")
    for path in sorted((PROGRAMS / "values").glob("*.py")):
        for name in SEVERAL.get(path.stem, (path.stem,)):
            yield Program("values", name, [COUNTED, "OUT", path], known.get(name), environment={"KIND": name})


def _spread():
    for name, words in (SPREAD | SPREAD_ALONE).items():
        script, *words = words
        launcher = [] if name in SPREAD_ALONE else ["-m", "torch.distributed.run", "--nproc-per-node", "2"]
        gpus = ("--gpus", "1" if name == "share" else "2") if name in SPREAD_ALONE else ()
        yield Program("spread", name, [*launcher, PROGRAMS / "spread" / script, *words], options=(*gpus, "--until-exit"))


def _scripts(folder, steps):
    for path in sorted((PROGRAMS / folder).glob("*.py")):
        words = [COUNTED, "--steps", steps, "OUT", path] if steps else [path]
        yield Program(folder, path.stem, words, options=("--until-exit",) if steps else ())
