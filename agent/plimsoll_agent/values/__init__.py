"""Numbers that a script reads from a device, on a phantom that computes none.

    phantom     data that only the phantom GPU has
    lines       a number that a line reads from the device: set by the user, or as that line read it before
    sizes       which of these numbers become sizes, by the text of the script
    asked_size  records that a script asked for the size of the card
    interpreted  what Triton's kernels compute of known integers
    drafts      how many drafted tokens a serving engine accepts
    ghosts      weights on the host that need no memory and no time
    draws       the state of a generator after many draws, stored from one run to the next
    detectors   the boxes of torchvision's detectors when all scores are unknown
    checks      truth values by which a program checks itself
    turns       `while` loops that end by values which nobody computed
    solvers     the steps of a solver that chooses them by errors
    descent     the iterations of an optimizer that solves inside its step
"""
