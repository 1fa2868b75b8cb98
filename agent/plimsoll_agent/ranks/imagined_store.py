"""The key-value store of a job whose other ranks are imagined: it answers as if each of them had written what this rank writes."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from plimsoll_agent.kinds import Torch


_TROUBLE = ("exception_dump", "remote_error")
"""In the keys of `ProcessGroupNCCL` by which a rank tells the others that it hangs or has failed: none that is imagined does."""


def store_class(dist: Torch) -> type:
    """The class, of a `torch.distributed` that has stores."""

    class ImaginedStore(dist.Store):
        """A key-value store that the others have already written to: what they would say is what we say."""

        def __init__(self, ask: Callable[[str], None]) -> None:
            """`ask` gets every key before it is answered."""
            dist.Store.__init__(self)
            self._ask = ask
            self._values: dict[Any, Any]
            self._values, self._lock = {}, threading.RLock()

        def set(self, key: Any, value: Any) -> None:
            self._ask(key)
            with self._lock:
                self._values[key] = _bytes(value)

        def get(self, key: Any) -> Any:
            self._ask(key)
            with self._lock:
                known = self._values.get(key)
                return known if known is not None else self._of_a_peer(key)

        def _of_a_peer(self, key: Any) -> Any:
            for mine, value in reversed(self._values.items()):
                # The same key but for its numbers, one of which is a rank.
                if _without_numbers(mine) == _without_numbers(key):
                    return value
            # What a group asks of its first rank: `ncclUniqueId`, 128 bytes of any value.
            return b"\x50" * 128

        def add(self, key: Any, value: Any) -> Any:
            with self._lock:
                total = int(self._values.get(key, b"0")) + value
                self._values[key] = b"%d" % total
                return total

        def compare_set(self, key: Any, expected: int | None, desired: Any) -> Any:
            with self._lock:
                known = self._values.get(key)
                if known is None and not expected or known == _bytes(expected):
                    self._values[key] = _bytes(desired)
                return self._values.get(key, _bytes(expected))

        def append(self, key: Any, value: Any) -> None:
            with self._lock:
                self._values[key] = self._values.get(key, b"") + _bytes(value)

        def multi_get(self, keys: Any) -> list[Any]:
            return [self.get(key) for key in keys]

        def multi_set(self, keys: Any, values: Any) -> None:
            for key, value in zip(keys, values):
                self.set(key, value)

        def has_extended_api(self) -> bool:
            return True

        def check(self, keys: Any) -> bool:
            return not any(it in key for it in _TROUBLE for key in keys)

        def wait(self, _keys: Any, _timeout: Any = None) -> None:
            pass

        def delete_key(self, key: Any) -> bool:
            with self._lock:
                return self._values.pop(key, None) is not None

        def num_keys(self) -> int:
            return len(self._values)

        def set_timeout(self, _timeout: Any) -> None:
            pass

        def clone(self) -> Any:
            return self

    return ImaginedStore


def _bytes(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else bytes(value)


def _without_numbers(key: Any) -> str:
    return "".join(it for it in key if not it.isdigit())
