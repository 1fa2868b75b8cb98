"""How to combine the results of the parts of a batch: found by trying two of its samples, one by one and together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plimsoll_agent.remedies.support import places, split
from plimsoll_agent.run.host_random import HostRandom
from plimsoll_agent.run.nested import tensors_in
from plimsoll_agent.run.refusal import unsuited

if TYPE_CHECKING:
    from plimsoll_agent.kinds import Arguments, Function, Module, Named, Torch

KEPT_BYTES = 64 << 20
"""Outputs beside the loss are handed out if they are no larger."""


class Way:
    """How the parts of a model's batch belong together."""

    def __init__(self, has_loss: bool, weights: Any = None, along: Any = None) -> None:
        self.has_loss = has_loss
        self.weights = weights
        self._along = along  # Where the first dimension is not the batch: of each tensor which one is.
        self.is_doubtful = False
        self.is_alone = True  # The loss: no more of what the model returns has a part in what backward begins from.

    @property
    def axis(self) -> int:
        return 0 if self._along is None else 1

    def batch_of(self, torch: Torch, args: Arguments, kwargs: Named, whole: int) -> tuple[Any, Any]:
        """How many samples the inputs of a call have, and along which dimension each has them."""
        if self._along is None:
            return whole, split.dimensions(torch, args, kwargs, whole)
        pairs = zip(tensors_in(torch, (args, kwargs)), self._along)
        return next(it.size(1) for it, dimension in pairs if dimension == 1), self._along


def way_of(
    torch: Torch, remedy: str, module: Module, call: Function, args: Arguments, kwargs: Named, whole: int, along: Any = None
) -> Way:
    """Tries the model on two of its samples, apart and together. `along`: see `split.dimensions`."""

    choices = HostRandom()
    axis = 1 if along is not None and 1 in along else 0

    cut = split.dimensions(torch, args, kwargs, whole) if along is None else along

    def run(start: int, end: int) -> tuple[Any, Any]:
        choices.again()
        part_args, part_kwargs = split.part_of(torch, args, kwargs, whole, start, end, along)
        if axis == 0:
            part_kwargs = _with_uneven_labels(torch, part_kwargs, start)
        with places.looked_at(torch, remedy, module, (part_args, part_kwargs), cut, axis):
            return call(*part_args, **part_kwargs), part_kwargs

    got_both = []
    with split.undisturbed(torch, module):
        is_doubtful = split.is_cut_elsewhere(torch, module, 2, lambda: got_both.append(run(0, 2)))
        both, kwargs_of_both = got_both.pop()
        one, other = run(0, 1)[0], run(1, 2)[0]
        found = split.loss_in(torch, both)
        if found is None:
            got = split.together(torch, [one, other], [1, 1], axis)
            for a, b in zip(tensors_in(torch, got), tensors_in(torch, both)):
                if a.is_floating_point() and not split.close(torch, a, b):
                    raise unsuited(
                        remedy,
                        "%s: two samples of its input give other results together than one by one; is their first "
                        "dimension the batch?" % type(module).__name__
                    )
            way = Way(False, along=along if axis else None)
            way.is_doubtful = is_doubtful
            return way
        if axis:
            raise unsuited(
                remedy,
                "%s: it computes its loss itself, and the first dimension of its inputs is not the batch"
                % type(module).__name__
            )
        loss = found[1]
        losses = [split.loss_in(torch, it)[1] for it in (one, other)]
        for rule in (_by_shifted_labels, _by_labels, _by_samples, _as_a_sum):
            weights = [rule(kwargs_of_both, 2, i, i + 1) for i in range(2)]
            if None in weights:
                continue
            expected = losses[0] * weights[0] + losses[1] * weights[1]
            if split.close(torch, expected, loss):
                return Way(True, rule)
    raise unsuited(
        remedy,
        "%s: its loss of two samples is neither the sum nor an average of their losses" % type(module).__name__
    )


def _with_uneven_labels(torch: Torch, kwargs: Named, start: int) -> Any:
    """Half of the first sample's labels that count do not here: only so an average over labels shows."""
    labels = kwargs.get("labels")
    if not isinstance(labels, torch.Tensor) or labels.dim() != 2 or labels.is_floating_point() or labels.size(1) < 4:
        return kwargs
    # A sample of which none counts has no loss to try.
    labels = torch.where(labels.ne(-100).any(1, keepdim=True), labels, 0)
    if start == 0:
        counts = labels[0].ne(-100)
        labels[0] = torch.where(counts.cumsum(0) * 2 <= counts.sum(), -100, labels[0])
    return dict(kwargs, labels=labels)


def with_one_label(torch: Torch, way: Way, kwargs: Named) -> Any:
    """Of a part without a label that counts the loss is 0/0. It weighs nothing, but it is no number: one label counts."""
    if way.weights not in (_by_labels, _by_shifted_labels):
        return kwargs
    labels = kwargs["labels"]
    last = torch.zeros_like(labels, dtype=torch.bool)
    last[0, -1] = True
    has_none = labels[:, 1 if way.weights is _by_shifted_labels else 0 :].eq(-100).all()
    return dict(kwargs, labels=torch.where(last & has_none, 0, labels))


def _by_shifted_labels(kwargs: Named, whole: int, start: int, end: int) -> Any:
    return _share_of_labels(kwargs, whole, start, end, 1)


def _by_labels(kwargs: Named, whole: int, start: int, end: int) -> Any:
    return _share_of_labels(kwargs, whole, start, end, 0)


def _share_of_labels(kwargs: Named, whole: int, start: int, end: int, shift: Any) -> Any:
    labels = kwargs.get("labels")
    if labels is None or getattr(labels, "ndim", 0) != 2 or labels.is_floating_point() or labels.size(0) != whole:
        return None
    counts = labels[:, shift:].ne(-100)
    # A tensor on the labels' device: asking for the number would wait for it.
    return counts[start:end].sum() / counts.sum()


def _by_samples(kwargs: Named, whole: int, start: int, end: int) -> Any:
    return (end - start) / whole


def _as_a_sum(kwargs: Named, whole: int, start: int, end: int) -> float:
    return 1.0


def weights_of(way: Way) -> str | None:
    """What the loss of a batch averages over, in a word; None if the model returns none, or it is a sum."""
    return {_by_shifted_labels: "shifted labels", _by_labels: "labels", _by_samples: "samples"}.get(way.weights)


def is_exact(torch: Torch, module: Module) -> bool:
    """Whether parts of a batch give the very numbers of the whole."""
    modules = list(module.modules())
    dropout = any(isinstance(it, torch.nn.modules.dropout._DropoutNd) and it.p > 0 for it in modules)
    norm = any(isinstance(it, torch.nn.modules.batchnorm._NormBase) for it in modules)
    return not dropout and not norm
