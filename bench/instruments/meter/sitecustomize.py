"""Put on PYTHONPATH by `three_fifths.py`: ends a training after METER_STEPS steps, and lets one process at a time make its steps.

A step is one of an optimizer; of several the one with fewest steps counts. METER_LOCK is a file; it is locked from the end of the
first step to the end of the process, so that no other step disturbs the times.
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
    """Lets torch be loaded as it would be, and then looks at its optimizers."""

    def find_spec(self, name, path=None, target=None):
        if name != "torch.optim.optimizer":
            return None
        spec = PathFinder.find_spec(name, path, target)
        run = spec.loader.exec_module

        def exec_module(module):
            run(module)
            module.register_optimizer_step_post_hook(Meter().step)

        spec.loader.exec_module = exec_module
        return spec


if os.environ.get("METER_STEPS"):
    sys.meta_path.insert(0, Finder())
