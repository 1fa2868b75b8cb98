"""What workers of a loader made in one run is there for the next, and nobody can tell but by the time it takes."""

import os
import subprocess
import sys

import pytest
from harness import ROOT

PROGRAM = """
import json, multiprocessing, random, time
import torch
from torch.utils.data import DataLoader, Dataset
from plimsoll_agent import settings
from plimsoll_agent.trials import batches

MADE = multiprocessing.Value("i", 0)

class Pictures(Dataset):
    def __init__(self, **more):
        self.__dict__.update(more)
    def __len__(self):
        return 24
    def __getitem__(self, i):
        with MADE:
            MADE.value += 1
        time.sleep(0.002)
        self.look()
        length = 3 + random.randrange(20)
        return {"picture": torch.randn(3, 160, 160), "label": torch.tensor([i, length]), "name": f"{i}.png", "noise": torch.rand(2)}
    def look(self):
        pass

class Inner:
    def __init__(self, n):
        self.n = n

class Counting(Pictures):
    n = 0
    def look(self):
        self.n += 1

class Deeper:  # Its calls change something two objects further in.
    def __init__(self):
        self.own = [Inner(0), Inner(0)]
    def __call__(self):
        self.own[1].n += 1

def epoch(data, workers=2, **more):
    torch.manual_seed(0); random.seed(0)
    before, found = MADE.value, []
    for batch in DataLoader(data, 8, shuffle=True, num_workers=workers, **more):
        found.append([batch["label"].tolist(), batch["name"], batch["noise"].tolist(), list(batch["picture"].shape), bool(batch["picture"].std() > 0.8)])
    return found, MADE.value - before

batches.share()
%s
batches.install(torch, makes_its_own=settings.read().own_batches)
result = {}
for name, data, more in [
    ("plain", lambda: Pictures(), {}),
    ("generator", lambda: Pictures(own=torch.Generator()), {}),
    ("another", lambda: Pictures(size=7), {}),
    ("iterator", lambda: Pictures(lines=iter("abc")), {}),
    ("counting", lambda: Counting(), {}),
    ("within", lambda: Pictures(parts=[Inner(i) for i in range(4)], look=Deeper()), {}),
    ("no workers", lambda: Pictures(), {"workers": 0}),
    ("stays", lambda: Pictures(stays=True), {"persistent_workers": True}),
]:
    (first, n), (again, m) = epoch(data(), **more), epoch(data(), **more)
    result[name] = [first == again, n, m]
print(json.dumps(result))
"""


@pytest.fixture(scope="module")
def made():
    return run("")


def run(more):
    environment = dict(os.environ, PYTHONPATH=str(ROOT / "agent"))
    ran = subprocess.run([sys.executable, "-c", PROGRAM % more], env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return __import__("json").loads(ran.stdout)


def test_batches_are_made_once(made):
    assert made["plain"] == made["another"] == made["stays"] == [True, 24, 0]


@pytest.mark.parametrize("name", ["generator", "iterator", "counting", "within", "no workers"])
def test_a_dataset_with_a_state_of_its_own_makes_them_each_time(made, name):
    assert made[name] == [True, 24, 24]


@pytest.mark.soak
def test_who_checks_or_proves_makes_its_own():
    made = run("import os; os.environ['PLIMSOLL_OWN_BATCHES'] = '1'")
    assert made["plain"] == [True, 24, 24]
