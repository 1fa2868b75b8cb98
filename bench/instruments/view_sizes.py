"""How large `view --html` is beside the pickle, for each recording that is named.

    python bench/instruments/view_sizes.py fixtures/snapshots/*.pickle fixtures/distributed/*.pickle.xz

Of packed recordings the pickle's own size counts. Prints a line a recording, the smallest pickle first.
Needs PLIMSOLL_BIN, or `plimsoll` in the path.
"""

import lzma
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path


def main():
    rows = []
    for path in map(Path, sys.argv[1:]):
        raw = len(lzma.open(path).read()) if path.suffix == ".xz" else path.stat().st_size
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "page.html"
            subprocess.run([os.environ.get("PLIMSOLL_BIN", "plimsoll"), "view", path, "--html", out], check=False, capture_output=True)
            text = out.read_text()
        parts = {it: len(body) for it, body in re.findall(r'<script type="text/plain" id="([^"]+)">([^<]*)<', text)}
        data = sum(size for it, size in parts.items() if it.startswith("scene"))
        rows.append((raw, path.name, len(text), len(text) - data - parts["answers"], parts["answers"], data))
    print(f"{'recording':40}{'pickle':>12}{'page':>10}{'share':>8}{'code':>8}{'answers':>9}{'blocks':>9}")
    for raw, name, page, code, answers, data in sorted(rows):
        print(f"{name[:39]:40}{raw:12,}{page:10,}{100 * page / raw:7.1f}%{code:8,}{answers:9,}{data:9,}")


if __name__ == "__main__":
    if "--help" in sys.argv:
        sys.exit(__doc__)
    main()
