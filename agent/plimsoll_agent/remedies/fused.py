"""Fused optimizers (`fused=True`): one kernel updates many parameters.

Saves the temporaries of the optimizer's step and is faster. The same arithmetic in another order: equal to
rounding. Optimizers that have no fused form stay as they are.
"""

from plimsoll_agent.remedies.support.optimizers import set_in_optimizers


def apply(torch, parameters, hooks, note):
    set_in_optimizers(torch, fused=True)
