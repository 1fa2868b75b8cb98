#!/bin/bash
# On a machine with an NVIDIA GPU: two trainings under `plimsoll run`, one without, and what `top` and `exporter` say of them.
#   bench/instruments/top_on_gpu.sh PLIMSOLL PYTHON-WITH-TORCH [FOLDER-FOR-RESULTS]
set -u
plimsoll=$(realpath "$1") python=$2 out=${3:-$(mktemp -d)}
mkdir -p "$out"; here=$(mktemp -d); cd "$here"
# curl is not everywhere. get URL [ACCEPT]
get() { "$python" -c 'import sys, urllib.request as u
a = u.urlopen(u.Request(sys.argv[1], headers={"Accept": sys.argv[2]} if 2 < len(sys.argv) else {}))
print(a.status, a.headers["Content-Type"]); print(a.read().decode())' "$@"; }
export PLIMSOLL_CACHE=$here/cache
cat > train.py <<'END'
"""Trains for two minutes; with an argument, keeps that many MiB more at each step."""
import sys, time
import torch
leak, kept = int(sys.argv[1]) if 1 < len(sys.argv) else 0, []
model = torch.nn.Sequential(*(torch.nn.Linear(4096, 4096) for _ in range(8))).cuda()
optimizer = torch.optim.AdamW(model.parameters())
ended = time.time() + 120
while time.time() < ended:
    model(torch.randn(256, 4096, device="cuda")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    if leak:
        kept.append(torch.empty(leak << 20, dtype=torch.uint8, device="cuda"))
    torch.cuda.synchronize()
    time.sleep(0.2)
END
watch=$("$plimsoll" run --help | grep -q -- --watch && echo --watch)
"$plimsoll" run $watch -- "$python" train.py > "$out/steady.log" 2>&1 & a=$!
"$plimsoll" run $watch -- "$python" train.py 4 > "$out/grows.log" 2>&1 & b=$!
"$python" train.py > "$out/alone.log" 2>&1 & c=$!
trap 'kill $a $b $c 2>/dev/null; rm -rf "$here"' EXIT
sleep 45
echo "== nvidia-smi"; nvidia-smi --query-compute-apps=pid,used_memory,name --format=csv | tee "$out/nvidia-smi.csv"
nvidia-smi --query-gpu=uuid,memory.used,memory.free,memory.total --format=csv | tee -a "$out/nvidia-smi.csv"
echo "== torch's uuid"; "$python" -c 'import torch; print(torch.cuda.get_device_properties(0).uuid)'
echo "== top --once"; "$plimsoll" top --once | tee "$out/top.txt"; echo "exit ${PIPESTATUS[0]}"
echo "== top --json"; time "$plimsoll" top --json > "$out/top.json"; echo "exit $?"; cat "$out/top.json"
echo "== status files"; ls -la "${XDG_RUNTIME_DIR:-/none}/plimsoll/running" "${TMPDIR:-/tmp}/plimsoll-$(id -u)/running" 2>/dev/null
if "$plimsoll" exporter --help > /dev/null 2>&1; then
    "$plimsoll" exporter --listen 127.0.0.1:19519 > "$out/exporter.log" 2>&1 & d=$!
    trap 'kill $a $b $c $d 2>/dev/null; rm -rf "$here"' EXIT
    sleep 2
    echo "== exporter, Prometheus text"; get http://127.0.0.1:19519/metrics | tee "$out/metrics.prom"
    echo "== exporter, OpenMetrics"
    get http://127.0.0.1:19519/metrics 'application/openmetrics-text; version=1.0.0' | tee "$out/metrics.om" | tail -n 5
    echo "== 100 scrapes at once and 10 with a new look each, CPU of the exporter in clock ticks (user, system)"
    before=$(cut -d' ' -f14,15 /proc/$d/stat); "$python" -c '
import time, urllib.request
for _ in range(100):
    urllib.request.urlopen("http://127.0.0.1:19519/metrics").read()
for _ in range(10):
    time.sleep(1.05)
    urllib.request.urlopen("http://127.0.0.1:19519/metrics").read()'
    echo "before $before, after $(cut -d' ' -f14,15 /proc/$d/stat)"
    kill -INT $d; wait $d; echo "exporter ended with $?"; cat "$out/exporter.log"
fi
echo "results: $out"
