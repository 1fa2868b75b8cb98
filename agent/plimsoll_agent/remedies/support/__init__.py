"""Code that several remedies share; it knows no remedy.

    hooks            where remedies hook in: calls of a model, backward
    parameters       checks the parameters that a plan gives a remedy
    split            a batch in parts: what can be split, and how results are joined
    ways             how to combine the losses of the parts of a batch, found by trying
    places           refuses calls that pick samples by their index in the whole batch
    rerun            a part of a model runs again without side effects
    again            a call that runs again as a whole in backward
    spread           one rank of several, each with its share of every batch
    generation       `generate` for some of its prompts at a time
    host             tensors that wait in the host's memory
    blocks           the repeated blocks of a model
    functions        functions that are compiled and call a model
    block_costs      what each block keeps and costs, for the search
    linear_layers    the linear layers of a model
    optimizers       those that the script makes, with other options or in chunks
    other_optimizer  another optimizer in the place of the script's
"""

from __future__ import annotations
