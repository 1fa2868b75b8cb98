"""The part of plimsoll that runs inside the user's process: it watches a training run and records it.

    torch_import  notices `import torch`; nothing else runs before that
    bytecode      stores the bytecode of installed packages and of the agent from run to run
    torch_builds  whether plimsoll supports the installed torch
    imports       which CUDA functions a torch calls, and whether the phantom has all of them
    agent         wires everything together once torch has been imported
    settings      the settings of this run: variables of the environment, read once
    patch         the one place that replaces functions of PyTorch
    kinds         names of types, for annotations
    source        the text of a file as a tree, for all who look something up in it
    outside       turns experiment trackers and hubs off
    own_statements  what a script imports, and whether before anything else: read, not run
    launcher      `torchrun`, which becomes the rank that it would have started
    nursery       a process that has imported torch, and forks one child for each run

    run           records a training run; changes nothing that a step computes or allocates
    engines       looks at serving engines while they start
    watch         raises alarms when memory goes wrong in a long run
    values        numbers that a script reads from a device, on a phantom that computes none
    ranks         one rank of a job, without the other ranks
    trials        makes the runs of a search faster, with the same memory
    remedies      the changes of a plan; only these change the training
    inputs        other inputs than the script's own: longer, larger, half
    survive       repeats calls that ran out of memory, with the same results
    survey        facts of an unchanged run that `plimsoll fit` needs before it tries a remedy
    calibrate     measurements of real cards for `plimsoll calibrate`; nothing else uses it

Each of these uses only those above it: `values` uses `run`, and `survey` any of the others. One module has one concern.

Two rules hold everywhere. The agent allocates nothing on the device, synchronises nothing and
holds no tensor alive, so a run with it uses the same memory to the byte. And an error of the agent
becomes a note, never an exception in the user's program.
"""

FORMAT = 1
"""Version of the recording; `docs/recording-format.md` says what each version holds."""
