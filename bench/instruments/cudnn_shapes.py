"""Shapes for cudnn_plans.py: 1x1 convolutions of many sizes, for which cuDNN's first choice is often a matrix product of cublasLt.

    python bench/instruments/cudnn_shapes.py > shapes.json

`../results/raw/cudnn_plans-h200.jsonl.gz` has what an H200's cuDNN 9.19 answered for them, in three types and both layouts.
"""

import itertools
import json
import sys

if "--help" in sys.argv:
    sys.exit(__doc__)
rows = []


def add(n, c, size, k, kernel=1, stride=1, padding=0, groups=1):
    out = (size + 2 * padding - kernel) // stride + 1
    rows.append({"x": [n, c, size, size], "w": [k, c // groups, kernel, kernel], "y": [n, k, out, out], "p": [padding] * 2, "s": [stride] * 2, "d": [1, 1], "g": groups})


for n, (c, k), size in itertools.product((1, 8, 24, 48, 64), ((64, 256), (256, 64), (96, 384), (768, 768), (480, 160), (960, 1280), (192, 768)), (1, 7, 14, 28, 56)):
    add(n, c, size, k)
for n in (16, 48):
    add(n, 256, 28, 512, stride=2)
    add(n, 64, 28, 128, 3, 2, 1)
    add(n, 128, 14, 128, 3, 1, 1, groups=4)
print(json.dumps(rows))
