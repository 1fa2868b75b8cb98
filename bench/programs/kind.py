"""Runs one of the training scripts of `kinds`: `kind.py NAME`, or `kind.py list`."""

import sys

import torch
from kinds import KINDS, fields, habits, halves, mixtures, packages, published, rarities, solvers, techniques  # noqa: F401: each module adds its kinds

if sys.argv[1:] == ["list"]:
    print("\n".join(KINDS))
else:
    torch.manual_seed(0)
    KINDS[sys.argv[1]]()
