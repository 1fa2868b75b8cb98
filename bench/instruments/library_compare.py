"""How much of what library_facts.py measured on a GPU the phantom answers equally.

    python bench/instruments/library_compare.py TRUTH.jsonl[.gz]... -- MINE.jsonl...

Sizes are compared by function; calls of torch by every allocation and free of their second run, in order.
"""

import collections
import gzip
import json
import sys


def rows(paths):
    for path in paths:
        with gzip.open(path, "rt") if path.endswith(".gz") else open(path) as lines:
            yield from map(json.loads, lines)


def answers(paths):
    """By (section, question): the answer."""
    res = {}
    for kind, *row in rows(paths):
        if kind == "solver":
            # The question is all but the size; of the 64-bit functions, all but the two sizes.
            last = 2 if row[1].startswith("X") else 1
            res |= {(f"solver {row[1]}", f"{row[0]} {it[:-last]}"): it[-last:] for it in row[2]}
        elif kind == "rnn" and "status" not in row:
            res["rnn", str(row[:14] + row[19:])] = row[14:19]
        elif kind == "ctc":
            res["ctc", str(row[:4])] = row[5:]
        elif kind == "fft":
            res["fft", str(row[:4])] = row[4]
        elif kind == "op":
            second = row[4] if row[5] == "same" else row[5]
            res[f"calls of torch: {row[0].split()[0]}", row[0]] = [it for it in second if not isinstance(it, str)]
    return res


def main():
    if "--" not in sys.argv:
        sys.exit(__doc__)
    border = sys.argv.index("--")
    truth, mine = answers(sys.argv[1:border]), answers(sys.argv[border + 1 :])
    same, asked = collections.Counter(), collections.Counter()
    for key in truth.keys() & mine.keys():
        asked[key[0]] += 1
        same[key[0]] += truth[key] == mine[key]
    for section in sorted(asked):
        print(f"{section:32} {same[section]:6} of {asked[section]:6} equal")


if __name__ == "__main__":
    main()
