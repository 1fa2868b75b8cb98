"""What plimsoll does inside the user's process: watch a training run and write down what it saw.

    torch_import  notices `import torch`; nothing else runs before that
    bytecode      what Python compiles of installed packages, and of the agent, is kept from run to run
    torch_builds  is this a torch that we know?
    imports       which functions of the driver a torch asks for, and whether all have an answer
    agent         wires everything together once torch has been imported
    settings      what this run is asked for: the variables of the environment, read once
    patch         the one door by which something of PyTorch's is replaced
    kinds         names of types, for annotations
    outside       trackers and hubs are kept off
    own_statements  what a script imports, and whether before anything else: read, not run
    nursery       a process that has imported torch, and forks one child for each run

    run           sees a training run and writes it down; changes nothing that a step computes or takes
    watch         raises alarms when memory goes wrong in a long run
    values        what the script would compute on a device, where nobody computes
    ranks         one rank of a job, where the others are not there
    trials        runs of a search take less time, and the same memory
    remedies      what a plan changes in the training: the one part that means to
    inputs        another input than the script's own: longer, larger, half
    survive       does again what ran out of memory, with the same numbers
    survey        what a plain run shows `plimsoll fit` before it tries a remedy
    calibrate     what `plimsoll calibrate` asks real cards; nothing else uses it

Each of these knows only those above it: `values` uses `run`, and `survey` any of the others. One module has one concern.

Two rules hold everywhere. The agent allocates nothing on the device, synchronises nothing and
keeps no tensor alive, so a run with it uses the same memory to the byte. And an error of ours
becomes a note, never an exception in the user's program.
"""

FORMAT = 1
"""Version of the recording; `docs/recording-format.md` says what each version holds."""
