"""A sparse matrix times a sparse one: what PyTorch allocates for it, on whichever device is there.

    python bench/instruments/library_products.py OUT.jsonl

A line is the type, the layout, m, k, n, the elements of both, the pairs that are multiplied, the elements of the result, and every
allocation in order, frees below zero. `../results/raw/libraries/products.jsonl.gz` is an H200's.
"""

import json
import sys

import torch

SHAPES = [(300, 200, 300, 900, 900), (1, 1, 1, 1, 1), (64, 64, 64, 64, 64), (8000, 8000, 8000, 40000, 40000), (8000, 8000, 8000, 80000, 80000), (8000, 8000, 8000, 160000, 160000), (8000, 8000, 8000, 40000, 160000), (8000, 8000, 8000, 160000, 40000), (100000, 100000, 100000, 400000, 400000), (100000, 1000, 100000, 300000, 3000), (1000, 100000, 1000, 300000, 300000), (5000, 5000, 100, 50000, 5000), (100, 5000, 5000, 5000, 50000), (20000, 20000, 20000, 20000, 20000), (512, 512, 512, 60000, 60000), (2000, 2000, 2000, 1000000, 2000), (2000, 2000, 2000, 2000, 1000000), (1000000, 1000000, 1000000, 2000000, 2000000)]


def allocations(call):
    torch.cuda.synchronize()
    torch.cuda.memory._record_memory_history("all", context=None, stacks="python", max_entries=1_000_000)

    def seen():
        return [(e["action"], e["size"]) for trace in torch.cuda.memory._snapshot()["device_traces"] for e in trace if e["action"] in ("alloc", "free_completed")]

    before = len(seen())
    result = call()
    torch.cuda.synchronize()
    events = seen()[before:]
    torch.cuda.memory._record_memory_history(None)
    return result, [size if action == "alloc" else -size for action, size in events]


def random_matrix(rows, columns, elements, dtype):
    index = torch.stack([torch.randint(0, rows, (elements,)), torch.randint(0, columns, (elements,))])
    return torch.sparse_coo_tensor(index, torch.rand(elements, dtype=dtype), (rows, columns)).coalesce()


def main():
    if sys.argv[1:] in ([], ["--help"]):
        sys.exit(__doc__)
    with open(sys.argv[1], "w") as out:
        for m, k, n, first, second in SHAPES:
            for dtype, csr in ((torch.float32, False), (torch.float32, True), (torch.float64, False)):
                a, b = random_matrix(m, k, first, dtype), random_matrix(k, n, second, dtype)
                pairs = int(torch.bincount(b.indices()[0], minlength=k)[a.indices()[1]].sum())
                a, b = a.cuda(), b.cuda()
                if csr:
                    a, b = a.to_sparse_csr(), b.to_sparse_csr()
                a @ b
                result, events = allocations(lambda a=a, b=b: a @ b)
                out.write(json.dumps([str(dtype), "csr" if csr else "coo", m, k, n, a._nnz(), b._nnz(), pairs, result._nnz(), events]) + "\n")


main()
