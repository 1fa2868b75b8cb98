"""Runs one script and writes what the allocator did."""
import json, sys, runpy, time, os
import torch
out, script = sys.argv[1], sys.argv[2]
sys.argv = sys.argv[2:]
began = time.time(); error = None
try:
    runpy.run_path(script, run_name="__main__")
except SystemExit as e:
    error = None if not e.code else str(e.code)
except BaseException as e:
    error = f"{type(e).__name__}: {e}"[:300]
torch.cuda.synchronize()
s = torch.cuda.memory_stats()
json.dump({"allocated": s["allocated_bytes.all.peak"], "reserved": s["reserved_bytes.all.peak"], "allocations": s["allocation.all.allocated"], "segments": s["segment.all.allocated"], "error": error, "seconds": round(time.time() - began, 2)}, open(out, "w"))
