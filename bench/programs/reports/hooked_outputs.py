"""Runs a model and remembers what each of its modules returned, by name."""
from torch import nn


class HookedModel(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def run_with_cache(self, *inputs, names=None, **options):
        """The output, and a dictionary of what the modules returned (all of them, or those called by one of `names`)."""
        cache, handles = {}, []

        def remember(name):
            def hook(module, given, result):
                cache[name] = result[0] if isinstance(result, tuple) else result
            return hook

        for name, module in self.model.named_modules():
            if name and (names is None or name in names):
                handles.append(module.register_forward_hook(remember(name)))
        try:
            out = self.model(*inputs, **options)
        finally:
            for handle in handles:
                handle.remove()
        return out, cache
