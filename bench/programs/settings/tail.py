import json, os, statistics, time
import torch
_times = []
class timed:
    def __enter__(self):
        self.t = time.perf_counter()
    def __exit__(self, *_):
        if os.environ.get("REAL"):
            torch.cuda.synchronize()
        _times.append(time.perf_counter() - self.t)
def done():
    print("RESULT " + json.dumps({"allocated": torch.cuda.max_memory_allocated(), "reserved": torch.cuda.max_memory_reserved(), "step": statistics.median(_times[3:]), "steps": len(_times)}))
