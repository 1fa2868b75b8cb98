"""What was told of steps before they were measured, against what was measured: the error of each ratio to the plain step.

    python bench/fit/told.py bench/fit/h200-unseen-predicted.json bench/fit/h200-unseen-steps-quiet.json
    python bench/fit/told.py bench/fit/h200-newcomers-predicted.json bench/fit/h200-newcomers-turns.json
"""

import json
import statistics
import sys


def read(path):
    """Rows by model, batch and plan; and the column of a ratio that was measured in turns, if there is one."""
    told = json.load(open(path))
    in_turns = told["columns"].index("ratio") - 3 if "ratio" in told["columns"] else None
    return {tuple(row[:3]): row[3:] for row in told["steps"]}, in_turns


def share(errors, part):
    return sorted(errors)[min(len(errors) - 1, int(part * len(errors)))]


def line(name, found):
    errors = [abs(told / real - 1) for told, real, _ in found]
    inside = sum(it for *_, it in found)
    signed = statistics.mean(told / real - 1 for told, real, _ in found)
    print(
        f"{name:42} {len(found):4} ratios   median {statistics.median(errors):6.1%}   90th percentile {share(errors, 0.9):6.1%}"
        f"   mean with sign {signed:+6.1%}   in the range {inside}"
    )


def main():
    (told, _), (measured, in_turns) = read(sys.argv[1]), read(sys.argv[2])
    by_plan = {}
    for (model, batch, plan), row in measured.items():
        plain, ratio = measured.get((model, batch, "plain")), told.get((model, batch, plan), [None, None])[1]
        if plan == "plain" or plain is None or not ratio:
            continue
        real = row[in_turns] if in_turns else row[0] / plain[0]
        by_plan.setdefault(plan, []).append((ratio[0], real, ratio[1] <= real <= ratio[2]))
    line("all", [it for found in by_plan.values() for it in found])
    for plan, found in sorted(by_plan.items()):
        line(plan, found)


if __name__ == "__main__":
    main()
