"""Puts what steps.py measured on a GPU into h200-steps.json: seconds, and seconds of the kernels by kind.

    python bench/fit/kept.py steps.jsonl       rows of the same model, batch and plan are replaced
"""

import json
import re
import sys
from pathlib import Path

KEPT = Path(__file__).resolve().parent / "h200-steps.json"
# The first that the name of a kernel has; layouts and products of cuDNN are not told apart.
KINDS = (
    ("", r"^Optimizer\.|^torch/|Memcpy|Memset"),
    ("batch-norm", r"bn_|batch_norm"),
    ("attention", r"flash|fmha|attention|sdpa"),
    ("products", r"[nN]ch?w[tT]o|nhwcToNchw|fprop|dgrad|wgrad|conv|gemm|nvjet|cutlass|splitK|cublas"),
    ("pointwise", r""),
)


def by_kind(kernels):
    told = {}
    for name, _, microseconds in kernels:
        kind = next(it for it, pattern in KINDS if re.search(pattern, name))
        if kind:
            told[kind] = round(told.get(kind, 0) + microseconds / 1e6, 6)
    return dict(sorted(told.items()))


def main():
    kept = json.loads(KEPT.read_text())
    rows = {key: {tuple(it[:3]): it for it in kept.get(key, [])} for key in ("steps", "kernels")}
    for line in Path(sys.argv[1]).read_text().splitlines():
        it = json.loads(line)
        name = it["model"], it["batch"], it["plan"]
        if it.get("seconds"):
            rows["steps"][name] = [*name, round(it["seconds"], 6), it["reserved"], it["allocated"]]
        # Kernels of recurrent layers are matrix products too, several at a time.
        if it.get("kernels") and it["model"] not in ("lstm", "speech"):
            rows["kernels"][name] = [*name, by_kind(it["kernels"])]
    kept |= {key: list(it.values()) for key, it in rows.items()}
    lines = []
    for key, value in kept.items():
        if key in rows:
            lines.append(f' "{key}": [\n  ' + ",\n  ".join(map(json.dumps, value)) + "\n ]")
        else:
            lines.append(f' "{key}": {json.dumps(value)}')
    KEPT.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
