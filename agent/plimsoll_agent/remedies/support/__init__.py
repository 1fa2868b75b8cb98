"""What several remedies need; no remedy is known here.

    hooks            where remedies take hold: calls of a model, backward
    parameters       whether what a plan gives a remedy is what it takes
    split            a batch in parts: what can be split, and how results are put together
    ways             how the losses of the parts of a model's batch belong together, found by trying
    places           what a call takes by the number of a sample, which has no parts
    rerun            a part of a model runs again and leaves no trace
    again            a call that is made again as a whole in backward
    spread           one process of several, each with its share of every batch
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
