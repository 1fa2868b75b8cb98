"""What one training step computes and moves: operations, their arithmetic and their bytes, by the few kinds that step times tell apart.

On in runs that are made for it (`PLIMSOLL_METER`), never in one whose memory counts: every operation passes
through Python while it counts. It begins when the first step has ended and stops when the second has. What the program does on the host
alone (loading and drawing its data) is not counted.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import plimsoll_agent.run.work as work
from plimsoll_agent import patch
from plimsoll_agent.run import below
from plimsoll_agent.run.guard import guarded

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from plimsoll_agent.kinds import Counts, Function, Named, Nested, Operator, Tensor, Torch, Writes

_ONLY_LOOK = ("detach", "_unsafe_view", "empty", "empty_like", "empty_strided", "lift_fresh")
_COPYING = ("copy_", "_to_copy")
_RECURRENT = ("_cudnn_rnn", "_cudnn_rnn_backward")
_IN_LISTS = ("_foreach", "_fused_ada", "_fused_sgd", "_amp_foreach")
_WALKING = (
    "embedding", "embedding_dense_backward", "index", "index_select", "index_put", "index_put_", "_index_put_impl_", "index_add", "index_add_", "gather",
    "scatter_add", "scatter_add_", "scatter_reduce", "scatter_reduce_", "sort", "topk", "cumsum", "cumprod", "grid_sampler_2d", "grid_sampler_2d_backward",
    "_embedding_bag", "_embedding_bag_backward", "_embedding_bag_dense_backward",
)  # fmt: skip
"""Kernels whose time follows how many numbers they walk through rather than their bytes; so do those of resampling (`upsample_...`)."""
_TAPS = 6
"""A depthwise convolution gets through so many products while another kernel walks past one number."""


class LeftOut:
    """What a real run does and this one leaves out, because on a phantom there is nothing to keep: how often, and the bytes together."""

    def __init__(self, op: str) -> None:
        self._op = op
        self.forget()

    def forget(self) -> None:
        self.times, self.bytes = 0, 0

    def add(self, size: int, times: int = 1) -> None:
        """For remedies."""
        self.times += times
        self.bytes += size

    def kinds(self) -> list[Named]:
        if not self.times:
            return []
        return [{"op": self._op, "dtype": "uint8", "count": self.times, "flops": 0, "bytes": self.bytes / self.times}]


moved = LeftOut(work.LINK)
"""Copies between device and host."""
emptied = LeftOut(work.SEGMENT)
"""Segments that a remedy gave back to the device and that have to be asked for again."""


class Part:
    """What one part of a batch takes: parts like it that a run leaves out are counted as that one."""

    def __init__(self) -> None:
        self._counts: Counts | None = None
        self._before: Counts = {}
        self._taken: Counts | None = None

    def counts_into(self, counts: Counts | None) -> None:
        """A step is counted there from now on; None for a step that is not."""
        self._counts, self._before, self._taken = counts, {}, None

    @property
    def is_counted(self) -> bool:
        """Whether this step is counted."""
        return self._counts is not None

    def begins(self) -> None:
        """A part begins."""
        if self._counts is not None:
            self._before, self._taken = dict(self._counts), None

    def once_more(self) -> None:
        """One that is left out is like the last one that began, which is over."""
        if self._counts is None:
            return
        if self._taken is None:
            self._taken = {key: n - self._before.get(key, 0) for key, n in self._counts.items()}
        for key, n in self._taken.items():
            self._counts[key] += n


part = Part()


class Meter:
    """Counts one step."""

    def __init__(self, torch: Torch, recording: Writes) -> None:
        self._torch = torch
        self._recording = recording
        self._mode: AbstractContextManager[Any] | None = None
        self._counts: Counts = {}
        self._counted_hooks: patch.Replacement | None = None
        self._written = contextlib.ExitStack()

    @guarded
    def meets_compiled(self) -> None:
        """Before the program compiles something: it runs as it was written. Of what is compiled only the largest operations pass PyTorch's
        dispatcher, and a remedy is there to be compared with what runs in the same way."""
        self._written.enter_context(below.uncompiled(self._torch))

    def step_ended(self, step: int) -> None:
        """After each step of the program."""
        if step == 1 and self._mode is None:
            self._mode = self._counting()
            self._mode.__enter__()
            self._count_hooks()
            part.counts_into(self._counts)
            moved.forget()
            emptied.forget()
        elif self._mode is not None:
            self._mode.__exit__(None, None, None)
            self._mode = None
            part.counts_into(None)
            if self._counted_hooks is not None:
                self._counted_hooks.undo()
            kinds = [
                {"op": op, "dtype": dtype, "count": n, "flops": flops, "bytes": size}
                for (op, dtype, flops, size), n in sorted(self._counts.items())
            ]
            self._recording.write("work", ops=kinds + moved.kinds() + emptied.kinds())

    def _count_hooks(self) -> None:
        """Functions around tensors that autograd keeps, as checkpointing and offloading have them, are the host's work, and
        so is going into and out of the part of a model that has them: random states are kept there."""
        autograd, counts = self._torch._C._autograd, self._counts
        push = autograd._push_saved_tensors_default_hooks

        def counted(call: Function) -> Function:
            def called(tensor: Tensor) -> Any:
                _add(counts, work.HOOK)
                return call(tensor)

            return called

        def push_counted(pack: Function, unpack: Function) -> Any:
            _add(counts, work.AROUND)
            return push(counted(pack), counted(unpack))

        self._counted_hooks = patch.put(autograd, "_push_saved_tensors_default_hooks", push_counted)

    def _counting(self) -> AbstractContextManager[Any]:
        from torch.utils._python_dispatch import TorchDispatchMode
        from torch.utils.flop_counter import flop_registry

        torch, counts = self._torch, self._counts

        class Counting(TorchDispatchMode):
            is_plimsolls = True  # What it sees is what the script does, and not something of the script's own.

            def __torch_dispatch__(self, function: Operator, types: Any, args: Sequence[Any] = (), kwargs: Named | None = None) -> Any:
                kwargs = kwargs or {}
                function, args = _with_lengths_as_numbers(torch, function, args)
                result = below.goes_on(torch, function, args, kwargs)
                _count(torch, counts, flop_registry, function, args, kwargs, result)
                return result

        below.entered(torch)
        return Counting()


def _add(counts: Counts, op: str, dtype: str = "", flops: int = 0, size: int = 0, times: int = 1) -> None:
    key = (op, dtype, flops, size)
    counts[key] = counts.get(key, 0) + times


@guarded
def _count(
    torch: Torch, counts: Counts, flop_registry: dict[Operator, Function], function: Operator, args: Sequence[Any], kwargs: Named, result: Nested
) -> None:
    """Adds one operation to `counts`. What cannot be counted is left out, and the script never hears of it."""
    from torch.utils._pytree import tree_leaves

    inputs = [it for it in tree_leaves((args, kwargs)) if isinstance(it, torch.Tensor)]
    outputs = [it for it in tree_leaves(result) if isinstance(it, torch.Tensor)]
    devices = {it.device.type for it in inputs + outputs}
    if not devices - {"cpu"}:
        return
    packet = function._overloadpacket
    name = packet.__name__
    flops, size, times = 0, sum(_bytes(it) for it in inputs + outputs), 1
    if function.namespace == "fsdp":
        _add(counts, work.AROUND)
    if function.namespace == "c10d":
        op, size = work.NETWORK, _sent(torch, name, inputs)
    elif len({it.device for it in inputs + outputs if it.is_cuda}) > 1 and name in _COPYING:
        op, size = work.NETWORK, max(_bytes(it) for it in inputs + outputs)
    elif function.is_view or name in _ONLY_LOOK:
        op, size = work.LOOK, 0
    elif len(devices) > 1 and name in _COPYING:
        op, size = work.LINK, max(_bytes(it) for it in inputs + outputs)
    elif name in _RECURRENT:
        op, (flops, times), size = work.RECURRENT, _recurrent(function, args), 0
    elif packet in flop_registry:
        if "conv" in name:
            op, flops = _convolution(counts, torch, _given(function, args), inputs, outputs, size)
        else:
            op = work.ATTENTION if "attention" in name else work.MATMUL
            flops = flop_registry[packet](*_with_a_key_for_each_query(function, args), **kwargs, out_val=result)
    elif name in _WALKING or name.startswith("upsample"):
        op, flops = work.WALK, max(it.numel() for it in (outputs or inputs))
        size = 2 * _bytes(outputs[0]) if outputs else size
    else:
        op = work.MEMORY
        if name.startswith(_IN_LISTS):
            _add(counts, work.LOOK, times=len(inputs) // 2)
    floats = [it for it in inputs if it.is_floating_point()] or inputs or outputs
    dtype = str(max(floats, key=lambda it: it.numel()).dtype).rpartition(".")[2]
    if dtype == "float32" and _may_be_tf32(torch, op):
        dtype = "tf32"
    _add(counts, op, dtype, flops, size, times)


def _with_a_key_for_each_query(function: Operator, args: Sequence[Any]) -> Sequence[Any]:
    """Attention of grouped queries (`enable_gqa`) has fewer heads of keys and values than of queries, and computes as
    much as with one for each; PyTorch's formulas want one for each."""
    if not function._overloadpacket.__name__.startswith("_scaled_dot_product"):
        return args
    named = [(it.name, value) for it, value in zip(function._schema.arguments, args)]
    heads = dict(named)["query"].shape[1]

    def shown(it: Tensor) -> Tensor:
        batch, _, length, width = it.shape
        return it.new_empty((batch, heads, length, width), device="meta")

    return [shown(value) if name in ("key", "value") else value for name, value in named]


def _given(function: Operator, args: Sequence[Any]) -> Named:
    return {it.name: value for it, value in zip(function._schema.arguments, args)}


def _convolution(
    counts: Counts, torch: Torch, given: Named, inputs: list[Tensor], outputs: list[Tensor], size: int
) -> tuple[str, int]:
    """(kind, arithmetic) of one. cuDNN brings channels that lie in front into another layout and back, which is one more round through its
    bytes. A convolution of each channel by itself is PyTorch's own and not for tensor cores."""
    weight, groups = given["weight"], given.get("groups", 1)
    is_transposed, is_backward = given.get("transposed", "output_padding" in given), "grad_output" in given
    far = given["grad_output"] if is_backward else outputs[0]
    near = given["input"] if "input" in given else given["self"]
    products = (near if is_transposed else far).numel() * weight[0].numel()
    directions = sum(given["output_mask"][:2]) if is_backward else 1
    if groups > 1 and not is_transposed and tuple(weight.shape[:2]) == (groups, 1):
        return work.WALK, 2 * products * directions // _TAPS
    if _has_channels_in_front(torch, inputs):
        _add(counts, work.MEMORY, str(weight.dtype).rpartition(".")[2], 0, size)
    return work.CONVOLUTION, 2 * products * directions


def _has_channels_in_front(torch: Torch, inputs: list[Tensor]) -> bool:
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    largest = max(inputs, key=lambda it: it.numel())
    return largest.dim() not in formats or not largest.is_contiguous(memory_format=formats[largest.dim()])


def _with_lengths_as_numbers(torch: Torch, function: Operator, args: Sequence[Any]) -> tuple[Operator, Sequence[Any]]:
    """`ctc_loss` takes its lengths from the host as numbers, but hands them down as tensors when somebody listens, and
    then wants them on the device; it divides by them, too."""
    if function is torch.ops.aten.div.Tensor and len(args) == 2 and all(isinstance(it, torch.Tensor) for it in args):
        divided, by = args
        return function, [divided, by.to(divided.device) if by.dim() and not by.is_cuda else by]
    if function not in (torch.ops.aten._ctc_loss.Tensor, torch.ops.aten._ctc_loss_backward.Tensor):
        return function, args
    named = zip(function._schema.arguments, args)
    lengths = ("input_lengths", "target_lengths")
    return function._overloadpacket.default, [value.tolist() if it.name in lengths else value for it, value in named]


def _bytes(tensor: Tensor) -> int:
    """Those that are there: an expanded tensor is read once."""
    size = tensor.numel() * tensor.element_size()
    try:
        return min(size, tensor.untyped_storage().nbytes())
    except (RuntimeError, NotImplementedError):
        return size


def _sent(torch: Torch, name: str, tensors: list[Tensor]) -> int:
    """What a rank of a ring sends, and as much comes in."""
    world = torch.distributed.get_world_size()
    size = max(map(_bytes, tensors), default=0)
    if "broadcast" in name:
        return size
    return size * (world - 1) // world * (2 if "allreduce" in name else 1)


def _recurrent(function: Operator, args: Sequence[Any]) -> tuple[int, int]:
    """(arithmetic of one time step of one layer, how many of these one after the other)"""
    given = _given(function, args)
    weights = given["weight"]
    layers = max(1, len(weights) // max(1, given["weight_stride0"]))
    packed = given["batch_sizes"]
    if packed:
        steps, batch = len(packed), given["input"].size(0) / len(packed)
    else:
        batch, steps = given["input"].size(0), given["input"].size(1)
        if not given["batch_first"]:
            steps, batch = batch, steps
    backward = 2 if function._overloadpacket.__name__.endswith("backward") else 1
    flops = int(2 * backward * batch * sum(it.numel() for it in weights) / layers)
    return flops, steps * layers


def _may_be_tf32(torch: Torch, op: str) -> bool:
    """Whether products of float32 may use the tensor cores' shorter mantissa: convolutions do, unless told not to."""
    if op in (work.CONVOLUTION, work.RECURRENT):
        return torch.backends.cudnn.allow_tf32
    return op == work.MATMUL and torch.backends.cuda.matmul.allow_tf32
