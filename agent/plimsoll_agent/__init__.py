"""What plimsoll does inside the user's process: watch a training run and write down what it saw.

One module, one concern; `agent.install` wires them together once torch has been imported.

    torch_import  notices `import torch`; nothing else runs before that
    support       is this a torch that we know?
    recording     the file of notes, one JSON object a line
    memory        PyTorch's own memory history: start it, count with it, dump it
    phases        forward, backward, optimizer, zero_grad, evaluation: where each begins and ends
    steps         what one training step is, for any number of optimizers
    steady        has memory stopped changing?
    checkpoints   that were there before stay as they were
    epochs        end early once it has, so that a validation is seen
    stopping      ends a run that has shown enough, politely
    modules       which module is running, for the allocations made inside
    owners        which model a module belongs to, and its path there
    detectors     what torchvision's detectors keep of scores that nobody computed
    descent       how far an optimizer goes that solves inside its step
    autotune      what Inductor tries where no time passes
    tensors       which address is which parameter, gradient, state or input
    oom           where memory ran out
    ranks         one rank of a job, the others imagined
    objects       Python objects that ranks send each other
    ghosts        weights on the host that take no memory and no time
    phantom       what only the phantom GPU knows
    frames        which line of a stack is the user's own
    ending        the last words of a process
    guard         our failures never become the user's
    first_step    what the first step took, to compare a plan's promise with
    stopwatch     how long steps take on the device
    meter         what a step computes and moves, in runs made for that
    nursery       a process that has imported torch, and forks one child for each run
    remedies      what a plan changes in the script: the one part that means to

Two rules hold everywhere. The agent allocates nothing on the device, synchronises nothing and
keeps no tensor alive, so a run with it uses the same memory to the byte. And an error of ours
becomes a note, never an exception in the user's program.
"""

FORMAT = 1
"""Version of the recording; `docs/recording-format.md` says what each version holds."""
