"""Micro-batches: each call of the model works on a part of the batch at a time, and the script does not change.

Saves the activations of all parts but one. The loop stays as it is: one loss, one backward, one clipping, one step
of optimizer and scheduler for the whole batch, the last, smaller batch included. Two ways, by what the model returns:

- a model that returns its loss runs forward and backward for each part, and hands out the loss of the whole batch
  with its gradients: gradient accumulation, at no cost but smaller kernels. How the loss averages (over samples,
  over labels that count, or not at all) is found by trying, see `split`. What it returns beside the loss may have a part in
  what backward begins from: then each part runs again there, and from the next call on in the second way;
- a model that returns outputs keeps them, and runs each part again when backward comes: any loss, also one that
  compares samples, gives the same gradients; costs one more forward pass. So does a model that returns its loss once it
  is in evaluation mode after it was trained: backward may never come, and the script looks at the outputs. And a model on
  several devices (`zero1`), whose gradients are put together in backward.

The numbers are the same up to rounding, except for dropout, which draws other random numbers, and batch-norm, which
sees the parts one by one. What a model decides by Python's or NumPy's random numbers it decides once for all parts. A model
that writes into itself whenever it is called (a queue of keys, an average of weights) is refused. The batch is the first
dimension of what a model is given or, where it cannot be and the second can (time comes first in older code), that one.

From the second part on each allocates and frees the same again. A run of a search that only looks for how many parts are enough makes
the first ones and the last (`PLIMSOLL_FEW_PARTS`): in the place of the others stand tensors as large as what they return. What is
proposed is run with all parts, until small batches and the worst ones went by in both orders.

Parameters: `parts`, how many.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import itertools
import weakref
from typing import TYPE_CHECKING, Any

from plimsoll_agent import settings
from plimsoll_agent.remedies.support import again, places, rerun, split
from plimsoll_agent.remedies.support.generation import generate_in_parts
from plimsoll_agent.remedies.support.rerun import as_before, has_other_weights, is_cache, watch_other_weights, without_cache
from plimsoll_agent.remedies.support.ways import KEPT_BYTES, is_exact, way_of, weights_of, with_one_label
from plimsoll_agent.run import meter, nested
from plimsoll_agent.run.host_random import HostRandom
from plimsoll_agent.run.refusal import CannotApply, unsuited
from plimsoll_agent.values import phantom

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plimsoll_agent.kinds import Arguments, Bounds, Function, Module, Named, Note, Tensor, Torch
    from plimsoll_agent.remedies.support.hooks import Hooks
    from plimsoll_agent.remedies.support.ways import Way
    from plimsoll_agent.run.recording import Recording

_batches = itertools.count()
"""Those so far, where few parts are to be made."""

_HALF_SCALE = 1024.0
"""Gradients of half precision are computed at this scale, so that small ones do not vanish."""

MOST_BORDERS = 1 << 16
"""No longer list of rows is read from the device."""



def apply(torch: Torch, parameters: Named, hooks: Hooks, note: Note) -> None:
    parts = parameters.get("parts", 2)
    were_trained: weakref.WeakSet[Module]
    ways: weakref.WeakKeyDictionary[Module, Any]
    ways, were_trained = weakref.WeakKeyDictionary(), weakref.WeakSet()
    evaluation = Evaluation(torch, parts, hooks.recording)
    generate_in_parts(torch, parts, hooks.recording)
    watch_other_weights(torch)
    rerun.bear_reentrant_checkpoints(torch)
    again.without_cuda_graphs(torch)

    def around(module: Module, call: Function, args: Arguments, kwargs: Named) -> Any:
        if not torch.is_grad_enabled() and not module.training and not hooks.on_shares:
            return evaluation.called(module, call, args, kwargs)
        whole = split.batch_size(torch, args, kwargs)
        # Shares of a batch differ by a sample, and all have equally many parts: in each the processes gather weights.
        least = whole if hooks.least_share is None else hooks.least_share
        if not hooks.is_training(module, (args, kwargs)) or whole is None or least is None or least < 2 or parts < 2:
            return call(*args, **kwargs)
        if has_other_weights(torch, module):
            return call(*args, **kwargs)
        # The second half of a chain of models: what comes before it wants gradients, too, and gets them in backward.
        is_second = any(t.requires_grad for t in nested.tensors_in(torch, (args, kwargs)))
        if module.training and module not in were_trained:
            were_trained.add(module)
            _warn_of_batch_norm(torch, module, note)
        may_be_evaluation = not module.training and module in were_trained
        with without_cache(module, kwargs):
            known = ways.setdefault(module, {})
            kind = split.kind_of(torch, args, kwargs, whole)
            if kind not in known:
                try:
                    known[kind] = way_of_batch(torch, module, call, args, kwargs, whole)
                except Exception:
                    if not may_be_evaluation and not is_second:
                        raise
                    known[kind] = None  # Not a batch, a single sample for example: as the script has it.
                else:
                    samples, _ = known[kind].batch_of(torch, args, kwargs, whole)
                    told = {"samples": samples, "loss": known[kind].has_loss, "weights": weights_of(known[kind])}
                    hooks.recording.write("split", **told, exact=is_exact(torch, module))
            way = known[kind]
            if way is None:
                return call(*args, **kwargs)
            whole, along = way.batch_of(torch, args, kwargs, whole)
            least = whole if hooks.least_share is None else hooks.least_share
            smallest = 2 if _has_batch_norm(torch, module) else 1  # Of one sample it may have nothing to average.
            bounds = split.bounds_of(whole, max(1, min(parts, least // smallest)))
            evaluation.largest[module] = bounds[0][1]
            is_at_once = way.has_loss and way.is_alone and not may_be_evaluation and not hooks.on_shares and not is_second
            run = _accumulated if is_at_once else recomputed
            return run(torch, module, call, args, kwargs, (whole, along), bounds, way)

    hooks.around_call(around)


class Evaluation:
    """Calls in evaluation mode that keep nothing for backward: in parts that are no larger than those of training. What cannot be cut
    or put together goes as a whole."""

    def __init__(self, torch: Torch, parts: int, recording: Recording) -> None:
        self._torch, self._parts, self._recording = torch, parts, recording
        self._ways: weakref.WeakKeyDictionary[Module, Any] = weakref.WeakKeyDictionary()
        self.largest: weakref.WeakKeyDictionary[Module, int] = weakref.WeakKeyDictionary()

    def called(self, module: Module, call: Function, args: Arguments, kwargs: Named) -> Any:
        torch = self._torch
        whole = split.batch_size(torch, args, kwargs)
        fills_cache = any(map(is_cache, (*args, *kwargs.values()))) or kwargs.get("use_cache")
        if whole is None or whole < 2 or fills_cache:
            return call(*args, **kwargs)
        if kwargs.get("labels") is not None:  # Who wants a loss continues no text.
            with without_cache(module, kwargs):
                return self._in_parts(module, call, args, kwargs, whole)
        return self._in_parts(module, call, args, kwargs, whole)

    def _in_parts(self, module: Module, call: Function, args: Arguments, kwargs: Named, whole: int) -> Any:
        torch = self._torch
        ways, kind = self._ways.setdefault(module, {}), split.kind_of(torch, args, kwargs, whole)
        if kind not in ways:
            try:
                ways[kind] = way_of_batch(torch, module, call, args, kwargs, whole)
            except torch.cuda.OutOfMemoryError:
                raise
            except Exception:
                ways[kind] = None
            else:
                if not self.largest:  # An evaluation draws and saves nothing; the result of the training counts more.
                    samples, _ = ways[kind].batch_of(torch, args, kwargs, whole)
                    self._recording.write("split", samples=samples, loss=False, exact=True)
        way = ways[kind]
        if way is None:
            return call(*args, **kwargs)
        whole, along = way.batch_of(torch, args, kwargs, whole)
        parts = -(-whole // self.largest[module]) if module in self.largest else min(self._parts, whole)
        if parts < 2:
            return call(*args, **kwargs)
        result = split.Whole(torch, whole, way.axis)
        for start, end in split.bounds_of(whole, parts):
            part_args, part_kwargs = split.part_of(torch, args, kwargs, whole, start, end, along)
            part_kwargs = with_one_label(torch, way, part_kwargs)
            weight = way.weights(kwargs, whole, start, end) if way.has_loss else None
            if not result.take(call(*part_args, **part_kwargs), start, end, weight):
                ways[kind] = None
                return call(*args, **kwargs)
        return result.output()


def recomputed(
    torch: Torch, module: Module, call: Function, args: Arguments, kwargs: Named, batch: Any, bounds: Bounds, way: Way, around: Any = None
) -> Any:
    """The output of the call, each part of the batch to be run again when backward comes; each time inside of
    `around(start, end)`, if that is given."""
    whole, along = batch
    outputs: list[Any] = []
    choices = HostRandom()
    # As in the call that showed that the loss is not alone: what ran again there runs again here.
    as_a_whole = again.is_compiled(torch, module) or not way.is_alone
    trained = [p for p in module.parameters() if p.requires_grad]
    hands_gradients_on = any(it.requires_grad for it in nested.tensors_in(torch, (args, kwargs)))
    # What backward runs again later is not one part after the other.
    makes_few = around is None and trained and not hands_gradients_on and not meter.part.is_counted
    is_alike = _alike(bounds) if makes_few else set()
    for start, end in bounds:
        if start in is_alike:
            outputs.append(_as_large(torch, outputs[-1], trained[0]))
            continue
        choices.again()
        part_args, part_kwargs = split.part_of(torch, args, kwargs, whole, start, end, along)
        part_kwargs = with_one_label(torch, way, part_kwargs)
        inside = functools.partial(around, start, end) if around else contextlib.nullcontext
        with rerun.spectral_kept(torch, module, start > 0):
            if as_a_whole:

                def run(inputs: tuple[Arguments, Named]) -> Any:
                    return call(*inputs[0], **inputs[1])

                output = again.without_graph(torch, "micro-batches", module, run, (part_args, part_kwargs), trained, inside)
            else:
                output = torch.utils.checkpoint.checkpoint(
                    functools.partial(_called_inside, call, inside),
                    *part_args,
                    use_reentrant=False,
                    context_fn=functools.partial(as_before, torch, module),
                    **part_kwargs
                )
        outputs.append(output)
    sizes = [end - start for start, end in bounds]
    if not way.has_loss:
        return split.together(torch, outputs, sizes, way.axis)
    weights = [way.weights(kwargs, whole, start, end) for start, end in bounds]
    found = [split.loss_in(torch, it) for it in outputs]
    total = sum(loss * weight for (_, loss), weight in zip(found, weights))
    return _whole_output(torch, outputs, found[0][0], total, sizes)


def _called_inside(call: Function, around: Any, *args: Any, **kwargs: Any) -> Any:
    with around():
        return call(*args, **kwargs)


def _accumulated(
    torch: Torch, module: Module, call: Function, args: Arguments, kwargs: Named, batch: Any, bounds: Bounds, way: Way
) -> Any:
    whole, along = batch
    chosen = [p for p in module.parameters() if p.requires_grad]
    gradients: list[Any] = [None] * len(chosen)
    weights = [way.weights(kwargs, whole, start, end) for start, end in bounds]
    sizes = [end - start for start, end in bounds]
    total: Any
    kept: list[_Kept] = []
    parts: list[again.Again] = []
    total, output, choices = None, None, HostRandom()
    is_alike = _alike(bounds)
    for (start, end), weight in zip(bounds, weights):
        if start in is_alike:
            kept.append(kept[-1].once_more(torch))
            parts.append(parts[-1])
            meter.part.once_more()
            continue
        meter.part.begins()
        choices.again()

        def run(start: int = start, end: int = end) -> Any:
            part_args, part_kwargs = split.part_of(torch, args, kwargs, whole, start, end, along)
            part_kwargs = with_one_label(torch, way, part_kwargs)
            with rerun.spectral_kept(torch, module, start > 0):
                return call(*part_args, **part_kwargs)

        parts.append(again.Again(torch, module, run))
        output = run()
        key, loss = split.loss_in(torch, output)
        loss = loss * weight
        scale = _HALF_SCALE if _is_half(torch, loss) else 1.0
        found = torch.autograd.grad(loss * scale, chosen, allow_unused=True)
        for i, gradient in enumerate(found):
            if gradient is not None:
                gradient = gradient.div_(scale) if scale != 1.0 else gradient
                gradients[i] = gradient if gradients[i] is None else gradients[i].add_(gradient)
        del found, gradient
        loss = loss.detach()
        total = loss if total is None else total + loss
        kept.append(_Kept(torch, output, key))
        del loss
        output = None
    result = _whole_output(torch, [it.output for it in kept], key, total.clone(), sizes)
    for it in kept:
        it.output = None
    tensors = nested.tensors_in(torch, result)
    place = torch.empty((), device="meta")  # Of the loss.
    shapes = nested.tensors_in(torch, _whole_output(torch, [it.shape for it in kept], key, place, sizes))
    at = [i for i, it in enumerate(shapes) if it is place or it.requires_grad]
    beside = [i for i in at if shapes[i] is not place]
    held = [gradients]
    del gradients

    def gradients_of(given: Any) -> Any:
        gradients = held.pop()
        given = dict(zip(at, given))
        of_loss = next((given[i] for i in at if i not in beside), None)
        if all(given[i] is None for i in beside):
            return [it if it is None or of_loss is None else it.mul_(of_loss.to(it.dtype)) for it in gradients]
        # The script wants more than the loss: what is there is of the loss alone.
        way.is_alone = False
        gradients = [None] * len(chosen)
        with torch.enable_grad():
            stand_ins = [it.stand_in(torch) for it in kept]
            from_parts = nested.tensors_in(torch, _whole_output(torch, stand_ins, key, place, sizes))
        leaves = [it for it in nested.tensors_in(torch, stand_ins) if it.requires_grad]
        of_leaves = iter(again.gradients_at(torch, [from_parts[i] for i in beside], [given[i] for i in beside], leaves))
        del stand_ins, from_parts, leaves
        for part, weight, it in zip(parts, weights, kept):
            with torch.enable_grad():
                output = part()
                others = it.beside(torch, output)
                outputs = [split.loss_in(torch, output)[1] * weight, *others]
            found = again.gradients_at(torch, outputs, [of_loss, *(next(of_leaves) for _ in others)], chosen)
            del output, outputs, others
            gradients = [b if a is None else a if b is None else a.add_(b) for a, b in zip(gradients, found)]
        return gradients

    handed = again.with_gradients(torch, "micro-batches", [tensors[i] for i in at], chosen, gradients_of)
    instead = {id(tensors[i]): it for i, it in zip(at, handed)}
    return nested.rebuilt(torch, result, lambda it: instead.get(id(it), it))


def _alike(bounds: Bounds) -> set[int]:
    """Where the parts begin that need not be made, if this run makes a few only: as large as those beside them, and neither among the first
    ones, which find no gradients yet, nor the last, which find all that the others return."""
    asked = settings.few_parts()
    if asked is None:
        return set()
    few, after = asked
    begins = few - 1 if after <= next(_batches) else len(bounds)
    sizes = [end - start for start, end in bounds]
    return {bounds[i][0] for i in range(begins, len(bounds) - 1) if sizes[i - 1] == sizes[i] == sizes[i + 1]}


def _as_large(torch: Torch, output: Any, leaf: Tensor) -> Any:
    """The output of another part, of tensors as large as these: backward comes to them, and goes no further."""
    tensors = nested.tensors_in(torch, output)
    made = _stand_ins(torch).apply(leaf, [it.requires_grad for it in tensors], *(it.detach() for it in tensors))
    instead = {id(it): new for it, new in zip(tensors, made)}
    return nested.rebuilt(torch, output, lambda it: instead.get(id(it), it))


@functools.cache
def _stand_ins(torch: Torch) -> Any:
    class StandIns(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, leaf: Tensor, have_gradients: Sequence[bool], *tensors: Tensor) -> Any:
            made = tuple(it.clone() for it in tensors)
            ctx.set_materialize_grads(False)
            ctx.mark_non_differentiable(*(it for it, has_one in zip(made, have_gradients) if not has_one))
            return made

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> tuple[Any, ...]:
            return (None,) * (2 + len(gradients))

    return StandIns


class _Kept:
    """What a part returned, without its graph; without tensors too if they are large. `shape` is the same without memory."""

    def __init__(self, torch: Torch, output: Any, key: Any) -> None:
        tensors = nested.tensors_in(torch, output)
        large = key is not None and sum(it.numel() * it.element_size() for it in tensors) > KEPT_BYTES
        self._is_kept = [key is not None and it.dim() > 0 and not large for it in tensors]
        kinds = iter(self._is_kept)
        self.output = None if key is None else nested.rebuilt(torch, output, lambda it: it.detach() if next(kinds) else None)
        had_graph = (it.requires_grad for it, is_kept in zip(tensors, self._is_kept) if is_kept)
        self._device = tensors[0].device
        self.shape = nested.rebuilt(torch, self.output, lambda it: it.to("meta").requires_grad_(next(had_graph)))

    def once_more(self, torch: Torch) -> _Kept:
        """Of another part that returns as much."""
        it = copy.copy(self)
        it.output = nested.rebuilt(torch, self.output, lambda tensor: tensor.clone())
        return it

    def stand_in(self, torch: Torch) -> Any:
        """The output, of tensors that take no memory and have no numbers."""

        def of(shape: Any) -> Any:
            it = torch.empty((), dtype=shape.dtype, device=self._device).expand(shape.shape)
            return it.requires_grad_(shape.requires_grad)

        return nested.rebuilt(torch, self.shape, of)

    def beside(self, torch: Torch, output: Any) -> list[Any]:
        """Of the results of a part that runs again: those that had a graph and were saved."""
        kept = [it for it, is_kept in zip(nested.tensors_in(torch, output), self._is_kept) if is_kept]
        return [it for it, shape in zip(kept, nested.tensors_in(torch, self.shape)) if shape.requires_grad]


def _is_half(torch: Torch, loss: Any) -> bool:
    kind = loss.device.type
    half = torch.is_autocast_enabled(kind) and torch.get_autocast_dtype(kind) is torch.float16
    return half or loss.dtype is torch.float16


def _whole_output(torch: Torch, kept: Any, key: Any, total: Tensor, sizes: Sequence[int]) -> Any:
    if key is None:
        return total

    def combined(values: Any) -> Any:
        if any(it is None for it in values):
            return None
        try:
            return split.together(torch, values, sizes)
        except CannotApply:
            return None

    first = kept[0]
    if isinstance(first, dict):
        result = {name: total if name == key else combined([it.get(name) for it in kept]) for name in first}
        result = {name: value for name, value in result.items() if value is not None}
        result.setdefault(key, total)
        return result if type(first) is dict else type(first)(result)
    if nested.is_record(first):
        parts = [nested.fields_of(it) for it in kept]
        return nested.with_fields(first, {name: total if name == key else combined([it[name] for it in parts]) for name in parts[0]})
    return type(first)(total if i == key else combined([it[i] for it in kept]) for i in range(len(first)))


def way_of_batch(torch: Torch, module: Module, call: Function, args: Arguments, kwargs: Named, whole: int) -> Way | None:
    """The way of a model whose batch is the first dimension of its inputs, or of an older one whose batch is the second."""
    _refuse_joined(torch, module, args, kwargs, whole)
    found, error = None, None
    for size, along in _cuts(torch, args, kwargs):
        try:
            _refuse_writers(torch, module, call, args, kwargs, size, along)
            way = way_of(torch, "micro-batches", module, call, args, kwargs, size, along)
        except torch.cuda.OutOfMemoryError:
            raise
        except Exception as why:
            error = error or why
            continue
        if not way.is_doubtful:
            return way
        found = found or way
    if found is not None:
        return found
    if isinstance(error, CannotApply):
        raise error
    raise unsuited(
        "micro-batches",
        "%s: it does not run with two samples of its batch (%s: %s)" % (type(module).__name__, type(error).__name__, error)
    ) from error


def _cuts(torch: Torch, args: Arguments, kwargs: Named) -> list[Any]:
    """What could be the batch, the likeliest first: the size, and along which dimension each input has it.

    What leaves lengths whole comes last. Words that are cut are fewer than their lengths say, and recurrent layers on a real
    GPU then read where nothing is, after which no call of CUDA works any more.
    """
    tensors, found = nested.tensors_in(torch, (args, kwargs)), []
    for axis in (0, 1):
        size = split.batch_size(torch, args, kwargs, axis)
        if size is not None and size > 1:
            along = split.dimensions(torch, args, kwargs, size, axis)
            whole = [it for it, dimension in zip(tensors, along) if dimension is None]
            found.append((any(map(_are_lengths, whole)), size, along))
    return [(size, along) for _, size, along in sorted(found, key=lambda it: it[0])]


def _refuse_joined(torch: Torch, module: Module, args: Arguments, kwargs: Named, whole: int) -> None:
    """Samples of several rows that are joined, with the rows at which they begin and end: a part of the rows is no part of the samples. What comes of a
    phantom does not show it."""
    for it in nested.tensors_in(torch, (args, kwargs)):
        if it.dim() == 1 and 1 < it.numel() <= MOST_BORDERS and it.numel() != whole and not it.is_floating_point() and not it.is_complex():
            rows = phantom.numbers_of(it) or [1]
            # Rows that are counted through are no borders, or those of samples of one row.
            if rows[0] == 0 and rows[-1] == whole and any(1 < b - a for a, b in zip(rows, rows[1:])) and rows == sorted(rows):
                raise unsuited(
                    "micro-batches",
                    "%s: its input joins %d samples of different lengths in %d rows (cu_seqlens), and a part of the rows would cut one of them"
                    % (type(module).__name__, len(rows) - 1, whole)
                )


def _are_lengths(tensor: Tensor) -> bool:
    """Positive whole numbers on the host, as `pack_padded_sequence` takes them."""
    is_list = tensor.dim() == 1 and tensor.numel() > 1 and not tensor.is_floating_point() and not tensor.is_complex()
    return is_list and tensor.device.type == "cpu" and int(tensor.min()) > 0


def _refuse_writers(torch: Torch, module: Module, call: Function, args: Arguments, kwargs: Named, whole: int, along: Any) -> None:
    part = split.part_of(torch, args, kwargs, whole, 0, 2, along)
    part_args, part_kwargs = nested.rebuilt(torch, part, lambda it: it.detach().clone())
    inputs = [(it, it._version) for it in nested.tensors_in(torch, (part_args, part_kwargs)) if not it.is_inference()]
    with places.looked_at(torch, "micro-batches", module, (part_args, part_kwargs), along, 1 if 1 in along else 0):
        name = split.written_by(torch, module, lambda: call(*part_args, **part_kwargs))
    if any(it._version != version for it, version in inputs):
        raise unsuited(
            "micro-batches",
            "%s: it writes into its input, and micro-batches would run again from the changed input" % type(module).__name__
        )
    if name is not None:
        raise unsuited(
            "micro-batches",
            "%s: each call of it writes into its `%s`, and micro-batches would do so more often than the whole batch"
            % (type(module).__name__, name)
        )


def _has_batch_norm(torch: Torch, module: Module) -> bool:
    return any(isinstance(it, torch.nn.modules.batchnorm._NormBase) and it.training for it in module.modules())


def _warn_of_batch_norm(torch: Torch, module: Module, note: Note) -> None:
    if _has_batch_norm(torch, module):
        note(
            "micro-batches-batch-norm",
            "the model has batch-norm, which normalizes each micro-batch by itself: its statistics and the results are "
            "those of the smaller batch",
        )
