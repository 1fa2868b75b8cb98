"""What the nursery's children are: as a process of their own, or not quite; and workers that make nothing ahead."""

import json
import subprocess
import sys

import pytest
from harness import COLD, ROOT, clean_environment

AGENT = str(ROOT / "agent")
sys.path.insert(0, AGENT)

from plimsoll_agent import own_statements  # noqa: E402


def read(folder, text):
    path = folder / "train.py"
    path.write_text(text)
    return own_statements.of(str(path))


@pytest.mark.parametrize(
    "text",
    [
        "import os\nSIZE = 4\nimport torch\ndef f(): pass\nprint(os.environ.get('HOME'), 'RANK' in os.environ, os.environ['PATH'])\n",
        "import warnings\nwarnings.filterwarnings('ignore')\nimport sys\nsys.path.append('..')\nfrom torch import nn\nnn.Linear(2, 2)\n",
        "try:\n    import apex\nexcept ImportError:\n    apex = None\nimport torch\n",
    ],
)
def test_imports_that_come_first(tmp_path, text):
    assert read(tmp_path, text).imports_first


@pytest.mark.parametrize(
    "text",
    [
        "import os\nos.environ['PYTORCH_CUDA_ALLOC_CONF'] = 'expandable_segments:True'\nimport torch\n",
        "import os, torch\nos.environ.setdefault('CUDA_VISIBLE_DEVICES', '0')\n",
        "import os, torch\ndel os.environ['X']\n",
        "import os, torch\nchange(os.environ)\n",
        "from os import environ\nimport torch\nenviron['X'] = '1'\n",
        "from dotenv import load_dotenv\nload_dotenv()\nimport torch\n",
        "import torch\ntorch.backends.cudnn.benchmark = True\nimport torchvision\n",
        "import torch\ntorch.manual_seed(0)\nimport torchvision\n",
        "import torch\nx = torch.zeros(2)\nimport torchvision\n",
        "import sys\nsys.modules['apex'] = None\nimport torch\n",
        "import torch\nif torch.cuda.is_available():\n    pass\nimport torchvision\n",
        "from .model import Net\n",
        "import (\n",
    ],
)
def test_something_that_an_import_could_see(tmp_path, text):
    assert not read(tmp_path, text).imports_first


def test_imports_that_may_not_run_are_told_apart(tmp_path):
    found = read(tmp_path, "import torch\ndef f():\n    from torchvision import models\nif f:\n    import json\n")
    assert found.first == [("torch", ())] and found.later == [("torchvision", ("models",)), ("json", ())]
    assert not found.speaks_of_compile
    assert read(tmp_path, "import torch\nmodel = torch.compile(torch.nn.Linear(2, 2))\n").speaks_of_compile


LOADERS = """
import itertools, json, random, sys, torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info
sys.path.insert(0, sys.argv[1])
from plimsoll_agent.trials import unhurried

class Data(Dataset):
    def __len__(self): return 40
    def __getitem__(self, i):
        with open("made", "a") as file: file.write(f"{i}\\n")
        return i, torch.rand(1).item(), random.random()

class Stream(IterableDataset):
    def __iter__(self):
        for i in range(6 + 5 * get_worker_info().id):
            with open("made", "a") as file: file.write(f"{i}\\n")
            yield i, torch.rand(1).item(), random.random()

def batches(data, n, epochs=1, **options):
    open("made", "w").close()
    torch.manual_seed(0)
    loader, seen = DataLoader(data, 4, num_workers=2, **options), []
    for _ in range(epochs):
        for batch in itertools.islice(loader, n):
            seen.append([it.tolist() for it in batch])
    del loader
    return seen, len(open("made").readlines())

def all():
    return [
        batches(Data(), 2, shuffle=True),
        batches(Data(), 99, shuffle=True),
        batches(Data(), 3, 3, shuffle=True, persistent_workers=True),
        batches(Data(), 99, 2, persistent_workers=True, prefetch_factor=4),
        batches(Stream(), 99),
        batches(Stream(), 2, 2),
    ]

before = all()
unhurried.install(torch)
print(json.dumps([before, all()]))
"""


@pytest.mark.soak
def test_workers_make_the_same_and_no_more_than_is_wanted(tmp_path):
    (tmp_path / "loaders.py").write_text(LOADERS)
    words = [COLD, "loaders.py", AGENT]
    ran = subprocess.run(words, cwd=tmp_path, env=clean_environment(), capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    before, after = json.loads(ran.stdout)
    assert [it[0] for it in before] == [it[0] for it in after]
    assert after[0][1] == 2 * 4


ENDS = """
import tempfile, weakref
import torch
from plimsoll_agent import nursery
folder = tempfile.TemporaryDirectory()
nursery._nothing_is_taken_apart()
torchs = [it for it, info in weakref.finalize._registry.items() if info.func.__module__ == "torch.library"]
print(len(torchs) > 0, any(it.atexit for it in torchs), folder._finalizer.atexit)
"""


@pytest.mark.soak
def test_what_an_import_wants_done_at_the_end_is_done_by_each_child(tmp_path):
    """A temporary folder goes; what torch takes apart in its own memory goes with the process."""
    environment = dict(clean_environment(), PYTHONPATH=AGENT)
    ran = subprocess.run([sys.executable, "-c", ENDS], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert ran.stdout.split() == ["True", "False", "True"], ran
