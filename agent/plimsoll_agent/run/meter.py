"""What one training step computes and moves: operations, their arithmetic and their bytes.

On in runs that are made for it (`PLIMSOLL_METER`), never in one whose memory counts: every operation passes
through Python while it counts. It begins when the first step has ended and stops when the second has.

What a `DataLoader` without workers takes of the processor to make a batch is the one time that is measured, on this machine: such a
step waits for it. With workers it depends on how fast the device is, and is left out. Random numbers that the program draws on the
host, and tensors that it makes there, count by their numbers and bytes.
"""

import contextlib
import math
import time

from plimsoll_agent.run import below
from plimsoll_agent.run.guard import guarded

_ONLY_LOOK = ("detach", "_unsafe_view", "empty", "empty_like", "empty_strided", "lift_fresh")
_PICKING = ("embedding", "index_select", "index", "gather")
_ROW, _ALIGNED = 79, 16
"""PyTorch has a block of threads for each row that an index picks, where rows are multiples of so many bytes: a row of 4 numbers takes as long as
one of 128, and each as long as so many numbers that are picked by themselves (bench/results/raw/step_times.jsonl)."""
_ADDING = ("index_add", "index_add_", "scatter_add", "scatter_add_", "scatter_reduce", "scatter_reduce_")
_SORTED_PICK, _ADDED = 32, 0.15
"""Where positions are sorted before their numbers are added: what a position takes, and a number of its row."""

_NUMBER_BY_NUMBER = {
    "_upsample_bilinear2d_aa": 3.4,
    "upsample_bilinear2d": 3.4,
    "upsample_bilinear2d_backward": 1.9,
    "upsample_bicubic2d": 5.6,
    "upsample_bicubic2d_backward": 19,
    "upsample_trilinear3d": 1.1,
    "upsample_trilinear3d_backward": 3.2,
    "avg_pool2d_backward": 2.6,
    "max_pool2d_with_indices": 0.54,
    "max_pool2d_with_indices_backward": 1.6,
    "grid_sampler_2d": 2,
    "grid_sampler_2d_backward": 7,
    "reflection_pad2d": 0.85,
    "reflection_pad2d_backward": 1.3,
    "im2col": 0.58,
    "col2im": 1.3,
    "roll": 1.3,
    "sort": 11.6,
    "topk": 3.9,
}
"""Kernels whose time depends on how many numbers they walk through and little on their bytes: those of the largest tensor, each as so many
that an index picks by themselves (bench/results/raw/step_times.jsonl)."""
_ALONG = ("cumsum", "cumprod")
_ALONG_LAST, _ALONG_ANOTHER = 0.58, 3.2
_TURNING = ("clone", "copy_", "_to_copy")
_TURNED = 0.87
"""A copy whose numbers lie in another order than those of what is copied."""
_SOFTMAX = {"_softmax": 3.05, "_log_softmax": 3.05, "_softmax_backward_data": 1.45, "_log_softmax_backward_data": 1.45}
"""Along another dimension than the last a thread walks through the numbers one by one: how often it waits for memory for each of them
(bench/results/raw/step_times.jsonl)."""
_THREADS, _NARROW = 1024, 64
"""Of a block of threads there; with no more than so many columns beside each other several threads share one."""
_WRITING = ("copy_", "fill_", "zero_", "uniform_", "normal_", "random_", "bernoulli_", "exponential_")
"""What they write to they do not read."""
_ELEMENTWISE = (
    *_WRITING, "_to_copy", "clone", "cat", "stack", "zeros", "ones", "full", "zeros_like", "ones_like", "full_like", "new_zeros", "new_full", "new_ones",
)  # fmt: skip
"""Beside those that PyTorch marks as such."""
_FEW, _MANY = 8, 64
"""Channels of a convolution: up to the one tensor cores are of no use for it, and above the other they are of full use."""
_RECURRENT = ("_cudnn_rnn", "_cudnn_rnn_backward")
_COPYING = ("copy_", "_to_copy")

_IN_LISTS = ("_foreach", "_fused_ada", "_fused_sgd", "_amp_foreach")
_SORTING = ("embedding_dense_backward", "_embedding_bag_backward", "_embedding_bag_dense_backward")
_SORTING_TO_ADD = ("index_put", "index_put_", "_index_put_impl_")
_HOOK = ("hook", "", 0, 0)
_AROUND = ("around", "", 0, 0)
_LISTED = ("listed", "", 0, 0)
_SHARDED = ("sharded", "", 0, 0)
_SORTED = ("sorted", "", 0, 0)
_DATA = {False: ("data", "", 0, 0), True: ("data-alone", "", 0, 0)}
"""By whether the device has nothing to do meanwhile."""

_DRAWING = (
    "rand", "rand_like", "randn", "randn_like", "randint", "randint_like", "randperm", "uniform_", "normal_", "random_", "bernoulli", "bernoulli_",
    "normal", "exponential_", "multinomial",
)  # fmt: skip
_PER_NUMBER = 5.5e-3
_PER_BYTE = 0.08e-3
"""Microseconds of a processor for a number that is drawn and a byte of a tensor that is made, on an H200's host with 16
cores (bench/results/raw/step_times.jsonl); with two cores a new tensor takes three times as long."""

_moved = [0, 0]
"""Copies between device and host that a real run would make and this one left out: how many, and their bytes."""


def moved(size):
    """A remedy left a copy out, because on a phantom there is nothing to keep."""
    _moved[0] += 1
    _moved[1] += size


_emptied = [0, 0]
"""Segments that a remedy gave back to the device and that have to be asked for again: how many, and their bytes."""


def emptied(segments, size):
    """A remedy emptied the allocator's cache."""
    _emptied[0] += segments
    _emptied[1] += size


class Meter:
    """Counts one step."""

    def __init__(self, torch, recording):
        self._torch = torch
        self._recording = recording
        self._mode = None
        self._counts = {}
        self._planned = set()
        self._push = None
        self._next_data = None
        self._device = Device()
        self._written = contextlib.ExitStack()

    def meets_compiled(self):
        """Before the program compiles something: it runs as it was written. Of what is compiled only the largest operations pass PyTorch's
        dispatcher, and a remedy is there to be compared with what runs in the same way."""
        self._written.enter_context(below.uncompiled(self._torch))

    def step_ended(self, step):
        """After each step of the program."""
        if step == 1 and self._mode is None:
            self._mode = self._counting()
            self._mode.__enter__()
            self._count_hooks()
            self._time_data()
            _moved[:] = _emptied[:] = [0, 0]
        elif self._mode is not None:
            self._mode.__exit__(None, None, None)
            self._mode = None
            self._torch._C._autograd._push_saved_tensors_default_hooks = self._push
            self._torch.utils.data.dataloader._SingleProcessDataLoaderIter._next_data = self._next_data
            kinds = [
                {"op": op, "dtype": dtype, "count": n, "flops": flops, "bytes": size}
                for (op, dtype, flops, size), n in sorted(self._counts.items())
            ]
            for op, dtype in sorted({it[:2] for it in self._planned}):
                count = sum(it[:2] == (op, dtype) for it in self._planned)
                kinds.append({"op": op, "dtype": dtype, "count": count, "flops": 0, "bytes": 0})
            for op, (count, size) in (("link", _moved), ("segment", _emptied)):
                if count:
                    kinds.append({"op": op, "dtype": "uint8", "count": count, "flops": 0, "bytes": size / count})
            self._recording.write("work", ops=kinds)

    def _count_hooks(self):
        """Functions around tensors that autograd keeps, as checkpointing and offloading have them, are the host's work, and
        so is going into and out of the part of a model that has them: random states are kept there."""
        autograd, counts = self._torch._C._autograd, self._counts
        push = self._push = autograd._push_saved_tensors_default_hooks

        def counted(call):
            def called(it):
                counts[_HOOK] = counts.get(_HOOK, 0) + 1
                return call(it)

            return called

        def push_counted(pack, unpack):
            counts[_AROUND] = counts.get(_AROUND, 0) + 1
            return push(counted(pack), counted(unpack))

        autograd._push_saved_tensors_default_hooks = push_counted

    def _time_data(self):
        """Microseconds of the processor. What makes the batch is not counted meanwhile, so that it takes what it always takes."""
        from torch.utils._python_dispatch import _get_current_dispatch_mode, _pop_mode_temporarily

        iterator, counts, device, mode = self._torch.utils.data.dataloader._SingleProcessDataLoaderIter, self._counts, self._device, self._mode
        next_data = self._next_data = iterator._next_data

        def timed(it):
            is_ours = _get_current_dispatch_mode() is mode
            began = time.thread_time()
            try:
                with _pop_mode_temporarily() if is_ours else contextlib.nullcontext():
                    return next_data(it)
            finally:
                key = _DATA[device.waits]
                counts[key] = counts.get(key, 0) + round((time.thread_time() - began) * 1e6)

        iterator._next_data = timed

    def _counting(self):
        from torch.utils._python_dispatch import TorchDispatchMode
        from torch.utils.flop_counter import flop_registry

        torch, counts, planned, device = self._torch, self._counts, self._planned, self._device

        class Counting(TorchDispatchMode):
            is_plimsolls = True  # What it sees is what the script does, and not something of the script's own.

            def __torch_dispatch__(self, function, types, args=(), kwargs=None):
                kwargs = kwargs or {}
                function, args = _with_lengths_as_numbers(torch, function, args)
                result = below.goes_on(torch, function, args, kwargs)
                _count(torch, counts, planned, flop_registry, function, args, kwargs, result, _DATA[device.waits])
                device.see(function, result)
                return result

        below.entered(torch)
        return Counting()


class Device:
    """Whether it has done all that it was given: the script has read a value since, as `loss.item()` does."""

    def __init__(self):
        self.waits = False

    def see(self, function, result):
        """After each operation. What is small between a reading and the next batch does not count."""
        name = function._overloadpacket.__name__
        if name == "_local_scalar_dense":
            self.waits = True
        elif name.startswith(_IN_LISTS) or name.endswith("backward"):
            self.waits = False


@guarded
def _count(torch, counts, planned, flop_registry, function, args, kwargs, result, data):
    """Adds one operation to `counts`, or what the host takes for it to `data` there; and its shapes to `planned` where cuDNN plans each. What
    cannot be counted is left out, and the script never hears of it."""
    from torch.utils._pytree import tree_leaves

    inputs = [it for it in tree_leaves((args, kwargs)) if isinstance(it, torch.Tensor)]
    outputs = [it for it in tree_leaves(result) if isinstance(it, torch.Tensor)]
    devices = {it.device.type for it in inputs + outputs}
    packet = function._overloadpacket
    name = packet.__name__
    if devices == {"cpu"}:
        microseconds = _on_host(function, name, outputs)
        if microseconds:
            counts[data] = counts.get(data, 0) + microseconds
        return
    if not outputs + inputs:
        return
    flops, size, times = 0, 0, 1
    if function.namespace == "fsdp":
        counts[_SHARDED] = counts.get(_SHARDED, 0) + 1
    if function.namespace == "c10d":
        kind, size = "network", _sent(torch, name, inputs)
    elif len({it.device for it in inputs + outputs if it.is_cuda}) > 1 and name in _COPYING:
        kind, size = "network", max(_bytes(it) for it in inputs + outputs)
    elif function.is_view or name in _ONLY_LOOK:
        kind = "look"
    elif len(devices) > 1 and name in _COPYING:
        kind, size = _link(inputs, outputs), max(_bytes(it) for it in inputs + outputs)
    elif name in _RECURRENT:
        kind, flops, times = _recurrent(function, args)
    elif packet in flop_registry:
        size = sum(_bytes(it) for it in inputs + outputs)
        if "conv" in name:
            kind, flops = _convolution(torch, _given(function, args), inputs, outputs)
        else:
            flops = flop_registry[packet](*_with_a_key_for_each_query(function, args), **kwargs, out_val=result)
            kind = _product(name, inputs, outputs)
    elif name in _PICKING:
        kind, flops, size = "gathered", _picked(name, function, args, outputs[0]), 2 * _bytes(outputs[0])
    elif name in _ADDING:
        kind, flops, size = "gathered", max(it.numel() for it in inputs[1:]), sum(_bytes(it) for it in inputs + outputs)
    else:
        kind = _norm(torch, name, inputs) if "batch_norm" in name else "pointwise"
        size = sum(_bytes(it) for it in inputs + outputs)
        if torch.Tag.pointwise in function.tags or name in _ELEMENTWISE or name.startswith(_IN_LISTS):
            kind, size = "elementwise", _through(function, name, args, inputs, outputs)
        weight = _weight(name, function, args, inputs, outputs)
        adds = name in _SORTING_TO_ADD and _given(function, args).get("accumulate")
        waits = _waits(name, function, args) if name in _SOFTMAX else 0
        if waits:
            kind, flops = "waiting", waits
        elif weight:
            kind, flops = "gathered", weight * max(it.numel() for it in inputs + outputs)
        elif adds:
            picks = max(it.numel() for it in inputs[1:-1]) if inputs[1:-1] else 1
            kind, flops = "gathered", _SORTED_PICK * picks + _ADDED * inputs[-1].numel()
        if "group_norm" in name:
            groups = _groups(torch, function, args)
            if groups:
                kind, size = "few-blocks", size / groups
        if name in _SORTING or adds:
            counts[_SORTED] = counts.get(_SORTED, 0) + 1
        if name.startswith(_IN_LISTS):
            counts[_LISTED] = counts.get(_LISTED, 0) + len(inputs)
    floats = [it for it in inputs if it.is_floating_point()] or inputs or outputs
    dtype = str(max(floats, key=lambda it: it.numel()).dtype).rpartition(".")[2]
    if dtype == "float32" and _may_be_tf32(torch, kind):
        dtype = "tf32"
    if kind.startswith("convolution") or "cudnn_attention" in name:
        op = "planned-convolution" if kind.startswith("convolution") else "planned-attention"
        planned.add((op, dtype, name, tuple(tuple(it.shape) for it in inputs)))
    key = (kind, dtype, flops, size)
    counts[key] = counts.get(key, 0) + times


def _on_host(function, name, outputs):
    """Microseconds that the host takes for an operation of its own: numbers drawn one by one, and memory that is written for the first time."""
    if name in _DRAWING:
        return round(_PER_NUMBER * sum(it.numel() for it in outputs))
    if function.is_view or function._schema.is_mutable or name in _ONLY_LOOK:
        return 0
    return round(_PER_BYTE * sum(_bytes(it) for it in outputs))


def _picked(name, function, args, result):
    """How many numbers that are picked by themselves take as long as what this operation picks."""
    given = _given(function, args)
    if name == "embedding":
        length = result.shape[-1]
    elif name == "index":
        # A mask stands for as many dimensions as it has.
        is_mask = [it is not None and str(it.dtype) in ("torch.bool", "torch.uint8") for it in given["indices"]]
        picked = sum(it.dim() if its_mask else 1 for it, its_mask in zip(given["indices"], is_mask))
        length = math.prod(given["self"].shape[picked:])
    else:
        source, dimension, index = given["self"], given["dim"], given["index"]
        length = math.prod(source.shape[dimension % max(1, source.dim()) + 1 :])
        if name == "gather" and any(index.stride(n) for n in range(dimension % index.dim() + 1, index.dim()) if index.shape[n] > 1):
            length = 1  # Another position for each number.
    is_row = 1 < length and length * result.element_size() % _ALIGNED == 0
    return _ROW * result.numel() // length if is_row else result.numel()


def _waits(name, function, args):
    """How often one thread waits for memory, one time after the other; 0 along the last dimension, where a block of threads shares a row."""
    given = _given(function, args)
    walked = given["grad_output"] if "grad_output" in given else given["self"]
    dimension = given["dim"] % max(1, walked.dim())
    beside = math.prod(walked.shape[dimension + 1 :])
    if beside <= 1:
        return 0
    steps, sharing = walked.shape[dimension], 1
    if beside <= _NARROW <= steps:
        sharing = 1 << min((_THREADS // beside).bit_length(), steps.bit_length()) - 1
    return _SOFTMAX[name] * steps / sharing


def _through(function, name, args, inputs, outputs):
    """Bytes that are read and written."""
    from torch.utils._pytree import tree_leaves

    given = zip(function._schema.arguments, args)
    written = [it for argument, value in given if _is_written(argument) for it in tree_leaves(value) if hasattr(it, "untyped_storage")]
    is_written = {id(it) for it in written}
    read = [it for it in inputs if not (name in _WRITING and id(it) in is_written)]
    fresh = [it for it in outputs if id(it) not in is_written]
    return sum(_bytes(it) for it in (*read, *written, *fresh))


def _is_written(argument):
    return argument.alias_info is not None and argument.alias_info.is_write


def _link(inputs, outputs):
    """What a copy between device and host goes over: the host copies it once more where its memory is not pinned."""
    on_host = [it for it in inputs + outputs if it.device.type == "cpu"]
    return "link" if all(it.is_pinned() for it in on_host) else "link-unpinned"


def _with_a_key_for_each_query(function, args):
    """Attention of grouped queries (`enable_gqa`) has fewer heads of keys and values than of queries, and computes as
    much as with one for each; PyTorch's formulas want one for each."""
    if not function._overloadpacket.__name__.startswith("_scaled_dot_product"):
        return args
    named = [(it.name, value) for it, value in zip(function._schema.arguments, args)]
    heads = dict(named)["query"].shape[1]

    def shown(it):
        batch, _, length, width = it.shape
        return it.new_empty((batch, heads, length, width), device="meta")

    return [shown(value) if name in ("key", "value") else value for name, value in named]


def _given(function, args):
    return {it.name: value for it, value in zip(function._schema.arguments, args)}


def _weight(name, function, args, inputs, outputs):
    """How many numbers that an index picks take as long as one of this operation; 0 where its bytes tell how long it takes."""
    if name in _ALONG:
        dimension = _given(function, args)["dim"]
        return _ALONG_LAST if dimension in (-1, inputs[0].dim() - 1) else _ALONG_ANOTHER
    if name in _TURNING and inputs and outputs:
        innermost = {_innermost(inputs[-1]), _innermost(outputs[0])} - {None}
        return _TURNED if len(innermost) > 1 else 0
    return _NUMBER_BY_NUMBER.get(name, 0)


def _innermost(tensor):
    """The dimension whose numbers lie beside each other, or None where that says nothing."""
    longer = [n for n, size in enumerate(tensor.shape) if size > 1]
    return next((n for n in longer if tensor.stride(n) == 1), None) if len(longer) > 1 else None


def _convolution(torch, given, inputs, outputs):
    """(kind, arithmetic) of one, as far as kernels differ: cuDNN's want the channels last and bring them there, and tensor cores want many
    channels; those of each channel by itself are neither cuDNN's nor for tensor cores, but PyTorch's own."""
    weight, groups = given["weight"], given.get("groups", 1)
    is_transposed, is_backward = given.get("transposed", "output_padding" in given), "grad_output" in given
    lies = "" if _has_channels_in_front(torch, inputs) else "-last"
    far = given["grad_output"] if is_backward else outputs[0]
    near = given["input"] if "input" in given else given["self"]
    products = (near if is_transposed else far).numel() * weight[0].numel()
    flops = 2 * products * (sum(given["output_mask"][:2]) if is_backward else 1)
    channels = min(weight.shape[0] // groups, weight.shape[1])
    is_flat = weight.dim() == 3
    if groups > 1 and not is_transposed and tuple(weight.shape[:2]) == (groups, 1):
        return ("depthwise-flat" if is_flat else f"depthwise{lies}"), flops
    if groups == 1 and channels <= _FEW:
        return "convolution-few", flops
    kind = "convolution" + "-grouped" * (groups > 1)
    if channels <= _MANY:
        kind += "-flat" * is_flat + f"-of-{max(_FEW, 1 << (channels - 1).bit_length())}"
    return kind + lies, flops


def _groups(torch, function, args):
    """How many groups are normalized, a block of threads for each, if that is less than the device has room for; or 0."""
    given = _given(function, args)
    groups = int(given["N"]) * int(given["group"])
    return groups if groups < torch.cuda.get_device_properties(given["input"].device).multi_processor_count else 0


def _norm(torch, name, inputs):
    """cuDNN's batch-norm, or PyTorch's own: bfloat16 has no other. Its kernels for channels in front walk through one
    channel with one block, and take several times as long for the same bytes."""
    if "cudnn" in name:
        return "batch-norm"
    is_slow = _has_channels_in_front(torch, inputs) and 2 < max(it.dim() for it in inputs)
    return "native-batch-norm" if is_slow else "batch-norm"


def _product(name, inputs, outputs):
    """What kind of product, as far as kernels differ: tensor cores want rows of halves that begin at multiples of 16 bytes."""
    if "attention" in name:
        return "attention"
    aligned = min((_alignment(it) for it in inputs + outputs if it.element_size() == 2), default=16)
    return {2: "matmul-by-2", 4: "matmul-by-4"}.get(aligned, "matmul")


def _has_channels_in_front(torch, inputs):
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    largest = max(inputs, key=lambda it: it.numel())
    return largest.dim() not in formats or not largest.is_contiguous(memory_format=formats[largest.dim()])


def _alignment(matrix):
    """The power of two, 16 at most, that the distance of rows in bytes is a multiple of; 16 without rows."""
    rows = [step for n, step in zip(matrix.size()[-2:], matrix.stride()[-2:]) if n > 1 and step > 1]
    size = max(rows, default=16) * matrix.element_size()
    return min(16, size & -size)


def _with_lengths_as_numbers(torch, function, args):
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


def _bytes(tensor):
    """Those that are there: an expanded tensor is read once."""
    size = tensor.numel() * tensor.element_size()
    try:
        return min(size, tensor.untyped_storage().nbytes())
    except (RuntimeError, NotImplementedError):
        return size


def _sent(torch, name, tensors):
    """What a rank of a ring sends, and as much comes in."""
    world = torch.distributed.get_world_size()
    size = max(map(_bytes, tensors), default=0)
    if "broadcast" in name:
        return size
    return size * (world - 1) // world * (2 if "allreduce" in name else 1)


def _recurrent(function, args):
    """(kind, arithmetic of one time step of one layer, how many of these one after the other)"""
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
    return "recurrent", flops, steps * layers


def _may_be_tf32(torch, kind):
    """Whether products of float32 may use the tensor cores' shorter mantissa: convolutions do, unless told not to."""
    if kind.startswith("convolution") or kind == "recurrent":
        return torch.backends.cudnn.allow_tf32
    return kind == "matmul" and torch.backends.cuda.matmul.allow_tf32
