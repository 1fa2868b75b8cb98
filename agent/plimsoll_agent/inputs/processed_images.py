"""`--worst-size` where an image processor of transformers makes the tensors, as vision-language models need it: each image gets the size before
it is processed, so that its patches, and the tokens of a text that stand for it, become as many as such an image has.

What a processor makes of the size is the processor's own: one that resizes to 336x336 does so with any. Images are empty: on a phantom nothing
looks at them. Images that are as large, and videos, stay as they are.
"""

from __future__ import annotations

import mmap
import threading
from typing import TYPE_CHECKING, Any

from plimsoll_agent import patch
from plimsoll_agent.run import nested
from plimsoll_agent.run.after_import import after_import
from plimsoll_agent.run.guard import guarded

if TYPE_CHECKING:
    from types import ModuleType

    from plimsoll_agent.kinds import Function, Torch

COLOURS = (1, 3, 4)
NOTHING_SMALLER = "no smaller image"
_MOST_TEXT, _MOST_SHOWN, _DEEPEST = 1024, 4, 4


class ProcessedImages:
    """What processors were given in place of smaller images, in this process and in its workers."""

    def __init__(self, torch: Torch, size: tuple[int, int]) -> None:
        self._torch, self._size, self._thread = torch, size, threading.local()
        self._text = mmap.mmap(-1, _MOST_TEXT)  # Workers of a loader are forked, and see the same.
        # The second is older transformers' class for processors of tensors.
        after_import("transformers.image_processing_utils", lambda it: self._hold(it, "BaseImageProcessor"))
        after_import("transformers.image_processing_utils_fast", lambda it: self._hold(it, "BaseImageProcessorFast"))

    @property
    def said(self) -> str:
        """What became of the images; empty while no processor was given one."""
        return self._text[:].rstrip(b"\0").decode(errors="replace")

    def _hold(self, module: ModuleType, name: str) -> None:
        processor = getattr(module, name, None)
        for method in ("__call__", "preprocess"):  # Some scripts call the second by itself.
            if processor is not None and method in vars(processor):
                self._wrap(processor, method)

    def _wrap(self, processor: type[Any], method: str) -> None:
        original: Function = vars(processor)[method]

        def process(self_: Any, images: Any = None, *args: Any, **kwargs: Any) -> Any:
            larger = None if getattr(self._thread, "is_inside", False) else self._larger(images)
            if larger is None:
                return original(self_, images, *args, **kwargs)
            self._thread.is_inside = True  # The one calls the other.
            try:
                made = original(self_, larger[0], *args, **kwargs)
            finally:
                self._thread.is_inside = False
            self._say(type(self_).__name__, *larger[1:], made)
            return made

        patch.put(processor, method, process)

    @guarded
    def _larger(self, images: Any) -> tuple[Any, list[str], list[str]] | None:
        """`images` with the size; the sizes of those that were smaller, and of the others. None where there is none."""
        if images is None:
            return None
        smaller: list[str] = []
        others: list[str] = []
        return self._each(images, smaller, others, 0), smaller, others

    def _each(self, value: Any, smaller: list[str], others: list[str], depth: int) -> Any:
        if isinstance(value, (list, tuple)) and depth < _DEEPEST:
            return type(value)([self._each(it, smaller, others, depth + 1) for it in value])
        if isinstance(value, str):
            from transformers.image_utils import load_image

            value = load_image(value)  # The processor would do the same with a path or an address.

        def is_smaller(height: int, width: int) -> bool:
            res = height * width < self._size[0] * self._size[1]
            (smaller if res else others).append("%dx%d" % (height, width))
            return res

        size = getattr(value, "size", None)
        if isinstance(size, tuple) and len(size) == 2 and hasattr(value, "mode"):  # Of the Python Imaging Library.
            return self._new(value.mode) if is_smaller(size[1], size[0]) else value
        shape: tuple[int, ...] = getattr(value, "shape", ())
        if not 2 <= len(shape) <= 4:
            return value
        last = len(shape) > 2 and shape[-1] in COLOURS and shape[-3] not in COLOURS
        at = len(shape) - (3 if last else 2)
        if not is_smaller(shape[at], shape[at + 1]):
            return value
        wanted = (*shape[:at], *self._size, *shape[at + 2 :])
        if isinstance(value, self._torch.Tensor):
            return value.new_zeros(wanted)
        import numpy as np

        return np.zeros(wanted, value.dtype)

    def _new(self, mode: str) -> Any:
        from PIL import Image

        return Image.new(mode, (self._size[1], self._size[0]))

    @guarded
    def _say(self, name: str, smaller: list[str], others: list[str], made: Any) -> None:
        if not smaller and not others or self._text[0] and (not smaller or NOTHING_SMALLER not in self.said):
            return
        values = dict(made) if hasattr(made, "keys") else {"images": made}
        shapes = ["%s %s" % (key, "x".join(map(str, it.shape))) for key, value in values.items() for it in nested.tensors_in(self._torch, value)[:1]]
        if smaller:
            text = "--worst-size gave %s each smaller image as %dx%d; the first one was %s" % (name, *self._size, smaller[0])
        else:
            text = "--worst-size %dx%d: %s got %s; the first one is %s" % (*self._size, name, NOTHING_SMALLER, others[0])
        if shapes:
            text += ". Of its first images it makes %s" % ", ".join(shapes[:_MOST_SHOWN])
        data = text.encode()[: _MOST_TEXT - 1]
        self._text[:] = data.ljust(_MOST_TEXT, b"\0")
