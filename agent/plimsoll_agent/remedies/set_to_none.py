"""`zero_grad` gives gradients back instead of filling them with zeros. The numbers are the same, except for
optimizers with momentum or weight decay and parameters that got no gradient in a step: those are left alone."""

import functools


def apply(torch, parameters, hooks, note):
    for owner in (torch.optim.Optimizer, torch.nn.Module):
        zero_grad = owner.zero_grad

        @functools.wraps(zero_grad)
        def wrapped(self, set_to_none=True, zero_grad=zero_grad):
            return zero_grad(self, set_to_none=True)

        owner.zero_grad = wrapped
