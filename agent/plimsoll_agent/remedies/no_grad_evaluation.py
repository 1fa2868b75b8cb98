"""Calls of a model in evaluation mode (`model.eval()`) keep no activations: they run under `no_grad`.

The numbers are the same. Not for scripts that need gradients of a model in evaluation mode (adversarial
examples, a frozen network inside another loss): there backward fails, and says so.
"""


def apply(torch, parameters, places, note):
    def around(module, call, args, kwargs):
        if module.training or not torch.is_grad_enabled():
            return call(*args, **kwargs)
        with torch.no_grad():
            return call(*args, **kwargs)

    places.around_call(around)
