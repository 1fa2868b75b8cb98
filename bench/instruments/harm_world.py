"""Builds the world in which every script of this bench starts: a project, a home and a place elsewhere.

    python bench/instruments/harm_world.py FOLDER        makes FOLDER/project, FOLDER/home and FOLDER/scratch

It holds what a person would hate to lose: checkpoints of a training that ran for real, links, data bases, archives, a data
set, a repository, odd names and modes. Nothing in it is zero by accident: a zero found later was written by somebody.
The contents are seeded and the times are fixed. It needs no GPU and takes some seconds, so the driver builds it once and
copies it. What a library writes (the checkpoints of transformers and lightning) holds versions and times of its own.
"""

import json
import logging
import os
import pickle
import random
import shelve
import shutil
import sqlite3
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

sys.dont_write_bytecode = True
os.environ |= {"CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}

# The moment at which everything was written last, in nanoseconds. It is no whole second, so that a copy that loses
# the fraction shows.
THEN = 1_700_000_000_123_456_789

# A module that several scripts import. Python would leave a `__pycache__` beside it.
LIT_MODEL = '''\
import lightning as L
import torch
from torch import nn


class Net(L.LightningModule):
    def __init__(self, width=256):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))

    def training_step(self, batch, index):
        (x,) = batch
        loss = (self.body(x) - x).pow(2).mean()
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, index):
        (x,) = batch
        self.log("val_loss", (self.body(x) - x).pow(2).mean())

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)
'''


def network():
    import torch
    from torch import nn

    torch.manual_seed(17)
    return nn.Sequential(nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 512))


def checkpoints(project):
    import numpy as np
    import torch

    model = network()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(2):
        x = torch.randn(64, 512)
        loss = (model(x) - x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    folder = project / "checkpoints"
    folder.mkdir()
    for step in (500, 600):
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
        torch.save(state, folder / f"step_{step:06}.pt")
    for name in ("last.pt", "best.pt"):
        torch.save(state | {"step": 2}, folder / name)
    os.symlink("checkpoints/step_000600.pt", project / "latest")
    os.symlink("checkpoints", project / "also-checkpoints")
    os.symlink("nowhere/at-all", project / "dangling")
    os.link(folder / "step_000600.pt", project / "hard.pt")
    from safetensors.torch import save_file

    save_file(model.state_dict(), project / "model.safetensors")
    torch.jit.save(torch.jit.trace(model, torch.randn(1, 512)), project / "scripted.pt")

    rows = np.random.default_rng(17).standard_normal((1024, 64), dtype=np.float32)
    np.save(project / "features.npy", rows)
    np.savez(project / "arrays.npz", a=rows[:8], b=np.arange(10))
    with open(project / "m.pkl", "wb") as file:
        pickle.dump({"epoch": 9, "scores": [0.5, 0.6]}, file)


def texts(project):
    (project / "precious.txt").write_text("the only copy\n")
    (project / "count.txt").write_text("7\n")
    (project / "best.txt").write_text("0.9\n")
    (project / "train.log").write_text("".join(f"step {it} loss {1 / (it + 1):.4f}\n" for it in range(100)))
    (project / "metrics.csv").write_text("step,loss\n0,1.0\n1,0.5\n")
    (project / "metrics.json").write_text(json.dumps({"best": 0.9, "steps": 600}) + "\n")
    (project / "config.yaml").write_text("lr: 0.001\nname: first\nsteps: 600\n")
    (project / "history.jsonl").write_text('{"step": 1, "loss": 1.0}\n')
    (project / "model_def.py").write_text("WIDTH = 512\nDEPTH = 2\n")
    (project / "lit_model.py").write_text(LIT_MODEL)
    (project / "input.txt").write_text("a line of the only input\n" * 40)
    output = project / "output"
    (output / "old" / "deep").mkdir(parents=True)
    (output / "precious.txt").write_text("in the old output\n")
    (output / "old" / "deep" / "result.bin").write_bytes(random.Random(1).randbytes(70_000))
    (output / "read-only.txt").write_text("may not be written\n")
    odd = project / "notes and étude"
    odd.mkdir()
    (odd / "étude 1.txt").write_text("an accent\n")
    (odd / "two\nlines").write_text("a newline in the name\n")
    (odd / os.fsdecode(b"not-utf8-\xff")).write_text("bytes that are no UTF-8\n")
    (project / "empty").mkdir()
    (project / "empty.txt").write_text("")
    (project / "secret.key").write_text("0123456789\n")
    (project / "tool.sh").write_text("#!/bin/sh\necho tool\n")


def raw_files(project):
    noise = random.Random(2)
    (project / "raw.bin").write_bytes(noise.randbytes(4 << 20))
    with open(project / "sparse.bin", "wb") as file:
        file.write(b"head")
        file.seek((64 << 20) - 4)
        file.write(b"tail")
    with tarfile.open(project / "archive.tar", "w") as tar:
        tar.add(project / "precious.txt", "precious.txt")
    with zipfile.ZipFile(project / "archive.zip", "w") as file:
        file.writestr(zipfile.ZipInfo("precious.txt"), "the only copy\n")
    with shelve.open(str(project / "shelf")) as shelf:
        shelf["epoch"], shelf["names"] = 9, ["a", "b"]
    data = project / "data"
    data.mkdir()
    for part in range(3):
        (data / f"part-{part}.txt").write_text("".join(f"{noise.random()}\n" for _ in range(200)))


def data_bases(project):
    base = sqlite3.connect(project / "runs.db")
    base.execute("create table runs(step integer, loss real)")
    base.executemany("insert into runs values(?, ?)", [(it, 1 / (it + 1)) for it in range(50)])
    base.commit()
    base.close()
    # A data base in WAL mode whose log was not yet written back, as after a crash: half of its rows are in the log only.
    work = project / "making"
    work.mkdir()
    base = sqlite3.connect(work / "wal.db")
    base.execute("pragma journal_mode=wal")
    base.execute("create table runs(step integer, loss real)")
    base.execute("insert into runs values(0, 1.0)")
    base.commit()
    base.execute("pragma wal_checkpoint(truncate)")
    base.execute("pragma wal_autocheckpoint=0")
    base.executemany("insert into runs values(?, ?)", [(it, 0.5) for it in range(1, 20)])
    base.commit()
    for name in ("wal.db", "wal.db-wal"):
        shutil.copy(work / name, project / name)
    base.close()
    shutil.rmtree(work)


def repository(project):
    where = project / "repo"
    where.mkdir()
    (where / "train.py").write_text("print('hello')\n")
    date = "2026-01-01T00:00:00Z"
    names = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b.c", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b.c"}
    environment = dict(os.environ, GIT_AUTHOR_DATE=date, GIT_COMMITTER_DATE=date, GIT_CONFIG_GLOBAL="/dev/null", **names)
    for words in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-q", "-m", "first"]):
        subprocess.run(["git", *words], cwd=where, env=environment, check=True)


def built(project):
    """A product that is younger than its source: nothing has to be done, unless somebody touches the source."""
    where = project / "build"
    where.mkdir()
    (where / "source.txt").write_text("one\ntwo\n")
    (where / "product.txt").write_text("ONE\nTWO\n")


def trainer_checkpoints(project):
    """hf_out/checkpoint-5 and -10, of a Trainer that ran on the CPU."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

    torch.manual_seed(17)
    shape = dict(n_layer=2, n_head=2, n_embd=64, vocab_size=500, n_positions=64)
    model = GPT2LMHeadModel(GPT2Config(**shape))
    words = [torch.randint(0, 500, (32,)) for _ in range(200)]
    data = [{"input_ids": it, "labels": it} for it in words]
    arguments = TrainingArguments(
        str(project / "hf_out"), per_device_train_batch_size=4, max_steps=10, save_steps=5, report_to=[],
        disable_tqdm=True, use_cpu=True, logging_steps=5,
    )
    Trainer(model=model, args=arguments, train_dataset=data).train()


def lightning_checkpoints(project):
    """lit/last.ckpt and the two best, of a Trainer that ran on the CPU."""
    sys.path.insert(0, str(project))
    import lightning as L
    import lit_model
    import torch
    from lightning.pytorch.callbacks import ModelCheckpoint
    from torch.utils.data import DataLoader, TensorDataset

    L.seed_everything(17, verbose=False)
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    keep = ModelCheckpoint(project / "lit", monitor="loss", save_top_k=2, save_last=True, filename="{step}")
    trainer = L.Trainer(
        accelerator="cpu", max_epochs=2, callbacks=[keep], logger=False, enable_progress_bar=False,
        enable_model_summary=False, default_root_dir=project,
    )
    trainer.fit(lit_model.Net(), DataLoader(TensorDataset(torch.randn(64, 256)), 16))


def home(folder):
    for path, text in {
        ".cache/x/index.json": '{"entries": 3}\n',
        ".cache/x/blob": "kept\n",
        ".config/app.toml": "seen = 7\n",
        ".bash_history": "ls\n",
        ".netrc-like": "a token of nobody\n",
    }.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)


def scratch(folder):
    folder.mkdir()
    (folder / "shared.bin").write_bytes(random.Random(3).randbytes(300_000))
    (folder / "registry.json").write_text('{"owner": "somebody else"}\n')
    (folder / "runs" / "run-007").mkdir(parents=True)
    (folder / "runs" / "run-007" / "weights.bin").write_bytes(random.Random(4).randbytes(10_000))


def modes(project):
    for name, mode in {
        "secret.key": 0o400, "tool.sh": 0o755, "output/read-only.txt": 0o444, "raw.bin": 0o640, "empty": 0o711,
    }.items():
        (project / name).chmod(mode)
    try:
        os.setxattr(project / "precious.txt", "user.origin", b"by hand")
    except OSError:
        pass  # Not every file system has them.


def times(folder):
    """Fixed times, one microsecond apart; the product of `build` is the younger one."""
    paths = sorted([*folder.rglob("*")], key=lambda it: (-len(it.parts), os.fsencode(it)))
    for place, path in enumerate(paths):
        when = THEN + 1000 * place
        if path.name == "product.txt":
            when += 60 * 10**9
        os.utime(path, ns=(when, when), follow_symlinks=False)


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        raise SystemExit(__doc__)
    folder = Path(sys.argv[1])
    project = folder / "project"
    project.mkdir(parents=True)
    texts(project)
    raw_files(project)
    data_bases(project)
    repository(project)
    built(project)
    checkpoints(project)
    trainer_checkpoints(project)
    lightning_checkpoints(project)
    home(folder / "home")
    scratch(folder / "scratch")
    modes(project)
    times(folder)


if __name__ == "__main__":
    main()
