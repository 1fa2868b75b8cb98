"""Machines with phantom GPUs and processes on them."""

import pytest
from scene import Machine


@pytest.fixture
def machine(tmp_path, cache):
    made = []

    def make(gpus):
        made.append(Machine(tmp_path, cache, gpus))
        return made[-1]

    yield make
    for it in made:
        it.end()
