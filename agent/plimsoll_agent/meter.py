"""What one training step computes and moves: operations, their arithmetic and their bytes.

On in runs that are made for it (`PLIMSOLL_METER`), never in one whose memory counts: every operation passes
through Python while it counts. It begins when the first step has ended and stops when the second has.
"""


class Meter:
    """Counts one step."""

    def __init__(self, torch, recording):
        self._torch = torch
        self._recording = recording
        self._mode = None
        self._counts = {}

    def step_ended(self, step):
        """After each step of the program."""
        if step == 1 and self._mode is None:
            self._mode = self._counting()
            self._mode.__enter__()
        elif self._mode is not None:
            self._mode.__exit__(None, None, None)
            self._mode = None
            kinds = [
                {"op": op, "dtype": dtype, "count": n, "flops": flops, "bytes": size}
                for (op, dtype), (n, flops, size) in sorted(self._counts.items())
            ]
            self._recording.write("work", ops=kinds)

    def _counting(self):
        from torch.utils._python_dispatch import TorchDispatchMode
        from torch.utils._pytree import tree_leaves
        from torch.utils.flop_counter import flop_registry

        torch, counts = self._torch, self._counts

        class Counting(TorchDispatchMode):
            def __torch_dispatch__(self, function, types, args=(), kwargs=None):
                kwargs = kwargs or {}
                result = function(*args, **kwargs)
                inputs = [it for it in tree_leaves((args, kwargs)) if isinstance(it, torch.Tensor)]
                outputs = [it for it in tree_leaves(result) if isinstance(it, torch.Tensor)]
                devices = {it.device.type for it in inputs + outputs}
                packet = function._overloadpacket
                is_view = function.is_view or packet.__name__ in ("detach", "_unsafe_view", "empty", "empty_like")
                if is_view or devices == {"cpu"} or not outputs + inputs:
                    return result
                flops = 0
                if packet in flop_registry:
                    flops = flop_registry[packet](*args, **kwargs, out_val=result)
                size = sum(it.numel() * it.element_size() for it in inputs + outputs)
                kind = "link" if len(devices) > 1 else "matmul" if flops else "pointwise"
                widest = max((it for it in inputs + outputs), key=lambda it: it.numel())
                key = (kind, str(widest.dtype).rpartition(".")[2])
                n, f, b = counts.get(key, (0, 0, 0))
                counts[key] = (n + 1, f + flops, b + size)
                return result

        return Counting()
