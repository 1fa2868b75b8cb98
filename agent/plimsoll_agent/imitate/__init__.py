"""Answers what nobody computed, so that a script does not see that its GPU, or its other ranks, are not there.

    phantom             what only the phantom GPU knows
    ranks               one rank of a job, the others imagined
    imagined_store      their key-value store
    object_collectives  Python objects that ranks send each other
    consolidation       states of optimizers that they tell each other
    draws               where a generator comes to after many draws, known from one run to the next
    batches             what workers of a loader made in one run, for those of the next
    ghosts              weights on the host that take no memory and no time
    detectors           what torchvision's detectors keep of scores that nobody computed
    descent             how far an optimizer goes that solves inside its step
    autotune            what Inductor tries where no time passes
    worst_sequence      every batch as long as the longest one that may come
    worst_size          every image as large as the largest one that may come
    unhurried           workers of a loader that make no batch ahead
    half                batches with half as many samples, or images of half the size
    lines               a number that a line reads of the device, as the user says or as it read before
    sizes               which of them become sizes, as the script's text shows
    edits               files of the script's have another text: a number, a framework's switches
    asked_size          that a script asked how large the card is
    outside             trackers and hubs are kept off
"""

from __future__ import annotations
