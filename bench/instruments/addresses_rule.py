"""Whether the rule of crates/addresses names every place that a driver chose.

    python3 bench/instruments/addresses_rule.py LOG...
    python3 bench/instruments/addresses_rule.py --fixture LOG > fixtures/addresses/NAME.txt

LOG is what `watch.so` wrote. Reservations are taken from the log, so whatever else is mapped into the process does not matter.
"""

import re
import sys

MIB = 1 << 20
GRANULE, CHUNK = 2 * MIB, 32 * MIB
RESERVED = re.compile(r"mmap \(nil\) (\w+) prot 0 flags 22 fd -1 -> 0x(\w+) libcuda")
RETURNED = re.compile(r"munmap 0x(\w+) (\w+) -> 0 libcuda")
# UVM_CREATE_EXTERNAL_RANGE, UVM_MAP_DYNAMIC_PARALLELISM_REGION, UVM_ALLOC_SEMAPHORE_POOL, UVM_FREE
PLACED = re.compile(r"uvm (73|65|68|34) (\w+) (\w+)")


def calls(path):
    with open(path, errors="replace") as file:
        for line in file:
            if it := RESERVED.match(line):
                yield "reserve", int(it[2], 16), int(it[1], 16)
            elif it := RETURNED.match(line):
                yield "return", int(it[1], 16), int(it[2], 16)
            elif it := PLACED.match(line):
                yield "free" if it[1] == "34" else "take", int(it[2], 16), -(-int(it[3], 16) // GRANULE) * GRANULE


def holes(reservation, taken):
    at, size = reservation
    end, free = at + size, []
    for start in sorted(it for it in taken if at <= it < end):
        free += [(start - at, at)] if at < start else []
        at = start + taken[start]
    return free + ([(end - at, at)] if at < end else [])


def trim(ranges, at, size):
    for start, (first, length) in enumerate(ranges):
        if first <= at < first + length:
            after = (at + size, first + length - at - size)
            ranges[start : start + 1] = [it for it in ((first, at - first), after) if it[1]]
            return


def check(path):
    ranges, taken, right, wrong = [], {}, 0, 0
    for kind, at, size in calls(path):
        if kind == "reserve":
            ranges.append((at, size))
        elif kind == "return":
            trim(ranges, at, size)
        elif kind == "free":
            taken.pop(at, None)
        else:
            ours = [it for it in ranges if it[0] % CHUNK == 0 and it[1] % CHUNK == 0 and it[1] < 1 << 36]
            if any(it[0] <= at < it[0] + it[1] for it in ours):
                fits = ([hole for hole in holes(it, taken) if size <= hole[0]] for it in reversed(ours))
                said = min(next(filter(None, fits), [(0, 0)]))[1]
                right, wrong = right + (said == at), wrong + (said != at)
            taken[at] = size
    print(path, right, "places named,", wrong, "not")


def fixture(path):
    top, held = None, set()
    for kind, at, size in calls(path):
        if kind == "reserve" and top is None and size == 2 * CHUNK - 4096:
            top = (at + size) // CHUNK * CHUNK
        if top is None or at < 1 << 44:
            continue
        if kind == "take":
            held.add(at)
            print("take", size // MIB, (top - at) // MIB)
        elif kind == "free" and at in held:
            held.remove(at)
            print("free", (top - at) // MIB)


if sys.argv[1:] in ([], ["--help"]):
    sys.exit(__doc__)
if sys.argv[1] == "--fixture":
    fixture(sys.argv[2])
else:
    for each in sys.argv[1:]:
        check(each)
