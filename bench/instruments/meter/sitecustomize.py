"""Put on PYTHONPATH by `three_fifths.py` and `lengths.py`: ends a training after METER_STEPS steps, and lets one process at a time make its steps.

A step is one of an optimizer; of several the one with fewest steps counts. METER_LOCK is a file; it is locked from the end of the
first step to the end of the process, so that no other step disturbs the times.

With METER_EVALUATION_LIMIT the allocator may have as many bytes more than are allocated when a module is first put into evaluation mode.
"""

import os
import sys
import time
from importlib.machinery import PathFinder


class Meter:
    def __init__(self):
        self.steps, self.began, self.file = {}, None, None
        self.most, self.seconds = int(os.environ["METER_STEPS"]), float(os.environ["METER_SECONDS"])

    def step(self, optimizer, *_):
        self.steps[id(optimizer)] = self.steps.get(id(optimizer), 0) + 1
        count = min(self.steps.values())
        if self.file is None:
            import fcntl

            self.file = open(os.environ["METER_LOCK"], "a")
            fcntl.flock(self.file, fcntl.LOCK_EX)
            self.began = time.monotonic()
        lasted = time.monotonic() - self.began
        if count >= self.most or (count >= 6 and lasted > self.seconds) or lasted > 3 * self.seconds:
            sys.modules["torch"].cuda.synchronize()  # Or its last steps have no times.
            raise SystemExit(0)


class Finder:
    """Lets a module of torch be loaded as it would be, and then looks at it."""

    def __init__(self, name, look):
        self.name, self.look = name, look

    def find_spec(self, name, path=None, target=None):
        if name != self.name:
            return None
        spec = PathFinder.find_spec(name, path, target)
        run = spec.loader.exec_module

        def exec_module(module):
            run(module)
            self.look(module)

        spec.loader.exec_module = exec_module
        return spec


def limit_evaluation(module):
    """Evaluations before the first step are none."""
    usual, is_done = module.Module.train, False

    def train(self, mode=True):
        nonlocal is_done
        cuda = sys.modules["torch"].cuda
        if not mode and not is_done and has_stepped:
            is_done = True
            cuda.synchronize()
            cuda.empty_cache()
            most = cuda.memory_allocated() + int(os.environ["METER_EVALUATION_LIMIT"])
            cuda.set_per_process_memory_fraction(most / cuda.mem_get_info()[1])
            print("evaluation limited to", most, "beside", cuda.memory_allocated(), flush=True)
        return usual(self, mode)

    module.Module.train = train


if os.environ.get("METER_STEPS"):
    sys.meta_path.insert(0, Finder("torch.optim.optimizer", lambda module: module.register_optimizer_step_post_hook(Meter().step)))
if os.environ.get("METER_EVALUATION_LIMIT"):
    has_stepped = []
    sys.meta_path.insert(0, Finder("torch.optim.optimizer", lambda module: module.register_optimizer_step_post_hook(lambda *_: has_stepped.append(True))))
    sys.meta_path.insert(0, Finder("torch.nn.modules.module", limit_evaluation))
