"""What each operator of PyTorch allocates, on a GPU and on the phantom: with the inputs that PyTorch's own tests give it, forwards and backwards.

    on a GPU        python bench/instruments/operators.py measure small >real.jsonl
    on the phantom  plimsoll predict --gpu h200 --until-exit -- python bench/instruments/operators.py measure small >said.jsonl
    both            python bench/instruments/operators.py compare real.jsonl[.gz] said.jsonl

`measure small|large|half [FROM [TO] | NAME...]` runs the operators of a part of the list, all in one process, so one that ends the process is the last one.
A row: the operator, which sample, how many allocations it made, their bytes, the highest sum above what was there, what is still there, all as requested; and
what the driver has given besides. `large` takes dimensions of 48 to 160 instead of 3 to 20, `half` bfloat16.
"""

import collections
import gc
import gzip
import itertools
import json
import sys
import time
import types
import warnings

SAMPLES = 6
LOOKED_AT = 60
SECONDS = 4.0


def database(large):
    """PyTorch's list of its operators, their samples made larger if asked."""
    stub = types.ModuleType("expecttest")
    stub.TestCase = type("TestCase", (__import__("unittest").TestCase,), {})
    stub.assert_expected_inline = lambda *_, **__: None
    sys.modules.setdefault("expecttest", stub)
    from torch.testing._internal import common_methods_invocations as invocations

    if large:
        sizes = {"XS": 12, "S": 48, "M": 96, "L": 160}
        for name, module in list(sys.modules.items()):
            if name.startswith("torch.testing._internal"):
                for size, value in sizes.items():
                    if isinstance(getattr(module, size, None), int):
                        setattr(module, size, value)
    return sorted(invocations.op_db, key=lambda it: (it.name, it.variant_test_name))


def tensors(value):
    import torch

    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [it for one in value for it in tensors(one)]
    return []


def once(op, sample, gradients):
    """Forwards, and backwards if a result has a graph."""
    import torch

    result = op(sample.input, *sample.args, **sample.kwargs)
    if not gradients:
        return result
    roots = [it for it in tensors(result) if it.requires_grad and (it.is_floating_point() or it.is_complex())]
    if roots:
        torch.autograd.backward(roots, [torch.ones_like(it) for it in roots])
    return result


def row(op, sample, gradients):
    import torch

    # What a garbage collector frees belongs to no operator.
    gc.collect()
    torch.cuda.synchronize()
    before = torch.cuda.memory_stats()
    free = torch.cuda.mem_get_info()[0] + torch.cuda.memory_reserved()
    torch.cuda.reset_peak_memory_stats()
    try:
        result = once(op, sample, gradients)
        error = None
    except Exception as it:  # noqa: BLE001 - an operator that refuses its sample does so on both sides
        result, error = None, type(it).__name__
    torch.cuda.synchronize()
    after = torch.cuda.memory_stats()
    taken = free - torch.cuda.mem_get_info()[0] - torch.cuda.memory_reserved()
    shapes = [list(it.shape) for it in tensors(result)]
    name = "requested_bytes.all"
    res = {
        "count": after["allocation.all.allocated"] - before["allocation.all.allocated"],
        "bytes": after[f"{name}.allocated"] - before[f"{name}.allocated"],
        "peak": after[f"{name}.peak"] - before[f"{name}.current"],
        "stays": after[f"{name}.current"] - before[f"{name}.current"],
        "driver": taken,
        "shapes": shapes,
    }
    return res | ({"error": error} if error else {})


def samples(op, dtype, gradients):
    import torch

    torch.manual_seed(1)
    given = list(itertools.islice(op.sample_inputs("cuda", dtype, requires_grad=gradients), LOOKED_AT))
    step = max(1, len(given) // SAMPLES)
    return list(enumerate(given))[::step][:SAMPLES]


def measure(kind, part):
    import torch

    gc.disable()
    warnings.simplefilter("ignore")
    wanted = {"half": [torch.bfloat16]}.get(kind, [torch.float32, torch.int64, torch.bool, torch.complex64])
    ops = database(kind == "large")
    # What a process takes once.
    (torch.ones(64, 64, device="cuda") @ torch.ones(64, 64, device="cuda")).sum().item()
    names = [it for it in part if not it.isdigit()]
    first, last = [*map(int, part), None, None][:2] if not names else (0, None)
    for number, op in list(enumerate(ops))[first:last]:
        if names and op.name not in names:
            continue
        dtype = next((it for it in wanted if it in op.supported_dtypes("cuda")), None)
        if dtype is None:
            continue
        gradients = op.supports_autograd and dtype in op.supported_backward_dtypes("cuda")
        name = f"{op.name}.{op.variant_test_name}".rstrip(".")
        print(f"@{json.dumps([number, name])}", flush=True)
        begun = time.monotonic()
        try:
            all_samples = samples(op, dtype, gradients)
        except Exception as it:  # noqa: BLE001
            print(f"@{json.dumps([number, name, 'samples', type(it).__name__])}", flush=True)
            continue
        for place, sample in all_samples:
            if SECONDS < time.monotonic() - begun:
                break
            found = row(op, sample, gradients)
            print(f"@{json.dumps([number, name, place, found])}", flush=True)
        all_samples = sample = None
    print("@[]", flush=True)


def rows(path):
    with gzip.open(path, "rt") if path.endswith(".gz") else open(path) as lines:
        for line in lines:
            if line.startswith("@"):
                yield json.loads(line[1:])


def compare(real, said):
    """Prints what is equal, and each sample that is not."""
    there = {(it[1], it[2]): it[3] for it in rows(said) if len(it) == 4}
    begun = {it[1] for it in rows(said) if len(it) == 2}
    same, asked, missing = collections.Counter(), 0, collections.Counter()
    for it in rows(real):
        if len(it) != 4 or it[2] == "samples":
            continue
        _, name, place, truth = it
        if "error" in truth:
            continue
        mine = there.get((name, place))
        if mine is None:
            missing[name, name in begun] += 1
            continue
        asked += 1
        parts = ["count", "bytes", "peak", "stays", "shapes"]
        off = [part for part in parts if truth[part] != mine[part]]
        same.update(part for part in parts if part not in off)
        same["driver"] += truth["driver"] == mine["driver"]
        if "error" in mine:
            off.append(mine["error"])
        if off:
            print(name, place, *(f"{it} {truth.get(it)} said {mine.get(it)}" for it in off), sep="; ")
    print(f"{asked} samples:", ", ".join(f"{part} {count}" for part, count in same.items()))
    for (name, is_begun), count in missing.items():
        print(f"not said: {name}, {count} samples" + (" (begun)" if is_begun else ""))


def main():
    match sys.argv[1:]:
        case ["measure", ("small" | "large" | "half") as kind, *part]:
            measure(kind, part)
        case ["compare", real, said]:
            compare(real, said)
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
