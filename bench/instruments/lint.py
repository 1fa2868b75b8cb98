"""How many planted mistakes `plimsoll lint` finds, and what it says of clean look-alikes.

    python bench/instruments/lint.py [--plimsoll BINARY]

`../programs/lint` has scripts one after the other, each under a line `#: name`. A line with a mistake ends in
`# <- CODE`, with all the codes that are meant. Every rule is asked for. A planted mistake is found if its code is said of its line;
anything else that is said of any line is a false alarm, in the planted scripts, too.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from sets import PROGRAMS


def cases(path):
    for part in re.split(r"^#: ", path.read_text(), flags=re.MULTILINE)[1:]:
        name, text = part.split("\n", 1)
        yield name, text


def expected(text):
    return {(number, code) for number, line in enumerate(text.splitlines(), 1) for code in re.findall(r"PLM\d+", line.split("# <-")[-1] if "# <-" in line else "")}


def said(binary, folder):
    ran = subprocess.run([binary, "lint", "--select", "ALL", "--format", "json", str(folder)], capture_output=True, text=True)
    assert ran.returncode in (0, 1), ran.stderr
    return json.loads(ran.stdout)["diagnoses"]


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--plimsoll", default="target/release/plimsoll")
    binary = arguments.parse_args().plimsoll
    print("| file | scripts | planted | found | false alarms |\n|---|---|---|---|---|")
    problems = []
    for path in sorted((PROGRAMS / "lint").glob("*.txt")):
        with tempfile.TemporaryDirectory() as folder:
            wanted = {}
            for number, (name, text) in enumerate(cases(path)):
                file = Path(folder, f"{number:03}.py")
                file.write_text(text)
                wanted[str(file)] = (name, expected(text), text)
            got = {file: set() for file in wanted}
            for it in said(binary, folder):
                got[it["file"]].add((it["line"], it["code"]))
        found = sum(len(want & got[file]) for file, (_, want, _) in wanted.items())
        planted = sum(len(want) for _, want, _ in wanted.values())
        false = sum(len(got[file] - want) for file, (_, want, _) in wanted.items())
        print(f"| {path.name} | {len(wanted)} | {planted} | {found} | {false} |")
        for file, (name, want, _) in wanted.items():
            problems += [f"{path.name}: {name}: line {line}: {code} is missing" for line, code in sorted(want - got[file])]
            problems += [f"{path.name}: {name}: line {line}: {code} is wrong" for line, code in sorted(got[file] - want)]
    print("\n" + "\n".join(problems) if problems else "\nAll are found, and nothing else.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
