"""What plimsoll does inside the user's process: watch a training run and write down what it saw.

    torch_import  notices `import torch`; nothing else runs before that
    bytecode      what Python compiles of installed packages is kept from run to run
    support       is this a torch that we know?
    imports       which functions of the driver a torch asks for, and whether all have an answer
    agent         wires everything together once torch has been imported
    settings      what this run is asked for: the variables of the environment, read once
    patch         the one door by which something of PyTorch's is replaced
    kinds         names of types, for annotations
    own_statements  what a script imports, and whether before anything else: read, not run
    nursery       a process that has imported torch, and forks one child for each run

    run           sees a training run and writes it down; changes nothing that a step computes or takes
    watch         raises alarms when memory goes wrong in a long run
    imitate       answers what nobody computed, so that a script does not see that its GPU is not there
    remedies      what a plan changes in the training: the one part that means to
    survive       does again what ran out of memory, with the same numbers
    survey        what a plain run shows `plimsoll fit` before it tries a remedy

Each of these knows only those above it: `imitate` uses `run`, and `survey` any of the others. One module has one concern.

Two rules hold everywhere. The agent allocates nothing on the device, synchronises nothing and
keeps no tensor alive, so a run with it uses the same memory to the byte. And an error of ours
becomes a note, never an exception in the user's program.
"""

from __future__ import annotations

FORMAT = 1
"""Version of the recording; `docs/recording-format.md` says what each version holds."""
