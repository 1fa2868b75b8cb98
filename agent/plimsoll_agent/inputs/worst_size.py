"""Makes every image as large as the largest one that may come, so that a prediction covers the worst batch, not only those of the run.

`PLIMSOLL_IMAGE_SIZE` says how large, as in `800x1333`: height and width. Images are made larger where they come from, in the
`DataLoader`: rows and columns are repeated. What has their height and width goes with them, masks for example, and so does what has a
whole fraction of these, as heat maps have. Boxes are not stretched. An image that has as many pixels stays as it is. On a phantom only:
what comes of such a batch is of no use for training. Where an image processor of transformers is given the images, it is given larger ones
instead (`processed_images`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plimsoll_agent import patch
from plimsoll_agent.inputs.processed_images import COLOURS, ProcessedImages
from plimsoll_agent.run import host, nested
from plimsoll_agent.run.refusal import CannotApply

if TYPE_CHECKING:
    from plimsoll_agent.kinds import Arguments, Named, Optimizer, Tensor, Torch
    from plimsoll_agent.run.recording import Recording

SMALLEST = 8
"""No image is lower or narrower: boxes and matrices are."""
_MOST_SHOWN = 4
_LAST, _BEFORE_CHANNELS = (-2, -1), (-3, -2)


def apply(torch: Torch, wanted: Any, recording: Recording) -> Any:
    """Takes its places; `wanted` is as in `800x1333`. To be called when the program ends: what is returned."""
    worst = WorstSize(torch, tuple(int(it) for it in wanted.split("x")), recording)
    worst.hold_loaders()
    from torch.optim import optimizer

    optimizer.register_optimizer_step_pre_hook(worst.before_step)
    return worst.at_end


class WorstSize:
    """See the top of this file."""

    def __init__(self, torch: Torch, size: tuple[int, ...], recording: Recording) -> None:
        self._torch = torch
        self._size = size
        self._recording = recording
        self._is_found = False
        self._is_said = False
        self._shown: list[Any] = []
        self._processed = ProcessedImages(torch, (size[0], size[1]))

    def hold_loaders(self) -> None:
        from torch.utils.data import dataloader

        iterator_class = dataloader._BaseDataLoaderIter
        original = iterator_class.__next__

        def __next__(iterator: Any) -> Any:
            return self._larger(original(iterator))

        patch.put(iterator_class, "__next__", __next__)

    def before_step(self, optimizer: Optimizer, args: Arguments, kwargs: Named) -> None:
        """The first step is about to end: where no image has come by now, none will."""
        if not self._is_found and not self._are_processed():
            self._is_found = True  # A program that catches the error and goes on gets it once.
            raise CannotApply("plimsoll: %s; set the size with the script's own arguments" % self._nothing())

    def at_end(self) -> None:
        """A program that trains nothing has come to its end."""
        if self._torch.cuda.is_initialized() and not self._is_found and not self._are_processed():
            self._is_found = True  # A program may end in more than one way at once.
            text = self._nothing() + ": the script ran unchanged"
            self._recording.note("worst-size", text)
            self._recording.write("worst", size=list(self._size), how="nothing", tensors=[], text=text)

    def _are_processed(self) -> bool:
        """Whether a processor was given larger images, so that what it made stays as it is."""
        text = self._processed.said
        if text and not self._is_found:
            self._is_found = self._is_said = True
            self._recording.note("worst-size", text)
            self._recording.write("worst", size=list(self._size), how="processor", tensors=[], text=text)
        return bool(text)

    def _nothing(self) -> str:
        size = _by(self._size)
        if not self._shown:
            return "--worst-size %s found no image: no DataLoader of the script returned a tensor" % size
        return "--worst-size %s found no image: the tensors of the DataLoader (%s) have no height and width of %d or more" % (
            size,
            ", ".join(self._shown),
            SMALLEST,
        )

    def _larger(self, batch: Any) -> Any:
        """`batch` with its images as large as asked for, and with what goes with them."""
        if self._are_processed():
            return batch
        sizes = self._sizes(nested.tensors_in(self._torch, batch))
        if sizes is None:
            for it in nested.tensors_in(self._torch, batch):
                if len(self._shown) < _MOST_SHOWN and _by(it.shape) not in self._shown:
                    self._shown.append(_by(it.shape))
            return batch
        self._is_found = True
        self._refuse_beyond_memory(batch, sizes)
        changed = []

        def larger(tensor: Tensor) -> Any:
            place, size = sizes.of(tensor)
            if size is None:
                return tensor
            repeated = _repeated(self._torch, tensor, place, size)
            changed.append("%s instead of %s" % (_by(repeated.shape), _by(tensor.shape)))
            return repeated

        batch = nested.rebuilt(self._torch, batch, larger)
        if not self._is_said:
            self._is_said = True
            self._say(list(dict.fromkeys(changed))[:_MOST_SHOWN])
        return batch

    def _sizes(self, tensors: Any) -> _Together | _Alone | None:
        """How large each tensor of a batch becomes; None where there is no image."""
        torch, wanted = self._torch, self._size
        seen = [it for it in tensors if it.dim() >= 3 and (it.is_floating_point() or it.dtype is torch.uint8)]
        together = [it for it in seen if it.dim() >= 4]
        for of, are_together in ((together, True), (seen, False)):
            for has_colours, place in ((True, _LAST), (True, _BEFORE_CHANNELS), (False, _LAST)):
                found = [_plane(it, place) for it in of if not has_colours or _has_colours(it, place)]
                found = [it for it in found if min(it) >= SMALLEST]
                if found and are_together:
                    largest = max(found, key=lambda it: it[0] * it[1])
                    return _Together(largest, wanted)
                if found:
                    return _Alone(set(found), wanted)
        return None

    def _refuse_beyond_memory(self, batch: Any, sizes: Any) -> None:
        need = 0
        for it in nested.tensors_in(self._torch, batch):
            place, size = sizes.of(it)
            if size is not None:
                before = _plane(it, place)
                need += it.numel() * it.element_size() // (before[0] * before[1]) * size[0] * size[1]
        free = host.free_memory()
        if free is not None and free < need:
            raise CannotApply(
                "plimsoll: --worst-size %s makes a batch of %.1f GiB in host memory, of which %.1f GiB are free; use a smaller size or "
                "a smaller batch" % (_by(self._size), need / (1 << 30), free / (1 << 30))
            )

    def _say(self, changed: list[str]) -> None:
        done = "--worst-size made every image of the DataLoader %s: %s" % (_by(self._size), ", ".join(changed))
        if not changed:
            done = "every image of the DataLoader has as many pixels as %s already: --worst-size made none larger" % _by(self._size)
        self._recording.note("worst-size", done)
        self._recording.write("worst", size=list(self._size), how="loader", tensors=changed, text=done)


class _Together:
    """A batch whose images are one tensor, or one for each kind: the largest gets the size, the others keep their ratio to it."""

    def __init__(self, largest: Any, wanted: Any) -> None:
        self._largest, self._wanted = largest, wanted

    def of(self, tensor: Tensor) -> tuple[Any, ...]:
        """Where height and width stand, and how large they become; None where they stay."""
        (height, width), wanted = self._largest, self._wanted
        if tensor.dim() < 3 or wanted[0] * wanted[1] <= height * width:
            return _LAST, None
        for place in (_LAST, _BEFORE_CHANNELS):
            if _plane(tensor, place) == self._largest:
                return place, wanted
        place = _BEFORE_CHANNELS if _has_colours(tensor, _BEFORE_CHANNELS) and not _has_colours(tensor, _LAST) else _LAST
        own = _plane(tensor, place)
        if min(own) < SMALLEST:
            return place, None
        is_fraction = height % own[0] == width % own[1] == 0 and height // own[0] == width // own[1]
        is_image = tensor.dim() >= 4 and tensor.is_floating_point() and _has_colours(tensor, place)
        if is_fraction or is_image:
            return place, (max(1, round(wanted[0] * own[0] / height)), max(1, round(wanted[1] * own[1] / width)))
        return place, None


class _Alone:
    """A batch whose images are a tensor each, of various sizes: all get the same."""

    def __init__(self, sizes: Any, wanted: Any) -> None:
        self._sizes = {it for it in sizes if it[0] * it[1] < wanted[0] * wanted[1]}
        self._wanted = wanted

    def of(self, tensor: Tensor) -> tuple[Any, Any]:
        """Where height and width stand, and how large they become; None where they stay."""
        for place in (_LAST, _BEFORE_CHANNELS)[: max(0, tensor.dim() - 1)]:
            if _plane(tensor, place) in self._sizes:
                return place, self._wanted
        return _LAST, None


def _plane(tensor: Tensor, place: tuple[int, int]) -> tuple[Any, Any]:
    return tensor.shape[place[0]], tensor.shape[place[1]]


def _has_colours(tensor: Tensor, place: tuple[int, int]) -> bool:
    return tensor.shape[-3 if place == _LAST else -1] in COLOURS


def _repeated(torch: Torch, tensor: Tensor, place: tuple[int, int], size: tuple[int, ...]) -> Any:
    """Its rows and columns repeated, or left out, until there are as many; what kind of tensor it is stays."""
    larger = tensor.as_subclass(torch.Tensor)
    for dimension, n in zip(place, size):
        before = larger.shape[dimension]
        index = torch.arange(n, device=tensor.device) * before // n
        larger = larger.index_select(dimension % tensor.dim(), index)
    if tensor.dim() == 4 and not tensor.is_contiguous() and tensor.is_contiguous(memory_format=torch.channels_last):
        larger = larger.contiguous(memory_format=torch.channels_last)
    return larger if type(tensor) is torch.Tensor else larger.as_subclass(type(tensor))


def _by(shape: Any) -> str:
    return "x".join(map(str, shape))
