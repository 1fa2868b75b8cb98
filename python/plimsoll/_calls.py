"""Calls a function in a process of its own, and returns its result.

That process imports the function of a module by its name. For a function of the running script it runs the script's file under
another name than `__main__`, as multiprocessing does. A function that cannot be imported (from a notebook, an interactive session
or inside another function) is sent by value if `cloudpickle` is installed, and refused if not.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import pickle
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from plimsoll._binary import PlimsollError

MAIN = "__plimsoll_main__"
"""The name under which a script's own file is run, instead of `__main__`."""

INSIDE = "PLIMSOLL_CALL"
"""Set in a process that runs a call."""


class CannotReach(PlimsollError):
    """The function, or one of its arguments, cannot be sent to another process."""


class FunctionFailed(PlimsollError):
    """The function raised; the text ends with its traceback. `__cause__` is the exception, if it can be pickled."""


class _Where(NamedTuple):
    module: str
    file: str | None
    name: str


class _Call(NamedTuple):
    where: _Where | None
    by_value: bytes | None
    arguments: bytes
    path: list[str]
    argv: list[str]


def write(path: Path, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Writes the call to `path`."""
    if os.environ.get(INSIDE):
        raise CannotReach(
            "plimsoll imported the script to run a function in this process, and the script called plimsoll again; put the call "
            'under `if __name__ == "__main__":`, so that importing the script does not run it'
        )
    function = getattr(function, "__plimsoll_function__", function)
    where, by_value = _where(function), None
    if where is None:
        by_value = _by_value(function)
    try:
        arguments = pickle.dumps((args, kwargs))
    except Exception as error:
        cloudpickle = _cloudpickle()
        if cloudpickle is None:
            raise CannotReach(
                f"an argument of {_shown(function)} cannot be pickled ({error}); pass plain values and build models and "
                "loaders inside the function, or install cloudpickle"
            ) from error
        arguments = cloudpickle.dumps((args, kwargs))
    call = _Call(where, by_value, arguments, list(sys.path), list(sys.argv))
    path.write_bytes(pickle.dumps(tuple(call)))


def _where(function: Callable[..., Any]) -> _Where | None:
    """How another process finds the function; None if only its value can be sent."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or "<" in name:
        return None
    loaded = sys.modules.get(module)
    found: Any = loaded
    for part in name.split("."):
        found = getattr(found, part, None)
    # A decorator leaves something else under the name, which knows the function.
    if found is not function and getattr(found, "__plimsoll_function__", None) is not function:
        return None
    file = getattr(loaded, "__file__", None)
    if module == "__main__":
        spec = getattr(loaded, "__spec__", None)
        if spec is not None and spec.name and spec.name != "__main__":
            # `python -m package.module`: under its own name, so that relative imports work.
            return _Where(MAIN, "-m " + spec.name, name)
        if file is None or not os.path.isfile(file):
            return None
    return _Where(MAIN if module == "__main__" else module, os.path.abspath(file) if file else None, name)


def _by_value(function: Callable[..., Any]) -> bytes:
    cloudpickle = _cloudpickle()
    if cloudpickle is None:
        raise CannotReach(
            f"another process cannot import {_shown(function)}: it is in a notebook, an interactive session or another function; "
            "put it at the top level of a .py file and import it from there (in a notebook: %%writefile train.py), or install "
            "cloudpickle, which sends the function itself"
        )
    try:
        data: bytes = cloudpickle.dumps(function)
        return data
    except Exception as error:
        raise CannotReach(
            f"{_shown(function)} cannot be sent to another process ({error}); put it at the top level of a .py "
            "file and import it from there"
        ) from error


def _cloudpickle() -> Any:
    try:
        return importlib.import_module("cloudpickle")
    except ImportError:
        return None


def _shown(function: Callable[..., Any]) -> str:
    return f"the function {getattr(function, '__qualname__', repr(function))}"


def run(path: str, result: str | None) -> None:
    """In the new process: makes the call, and writes its result or its error to `result`."""
    call = _Call(*pickle.loads(Path(path).read_bytes()))
    os.environ[INSIDE] = "1"
    sys.argv = call.argv
    sys.path[:] = call.path + [it for it in sys.path if it not in call.path]
    try:
        function = pickle.loads(call.by_value) if call.by_value is not None else _found(_Where(*call.where or ("", None, "")))
        args, kwargs = pickle.loads(call.arguments)
        value = function(*args, **kwargs)
    except Exception as error:
        if result is not None:
            _answer(result, error=error)
        raise
    if result is not None:
        _answer(result, value=value)


def _found(where: _Where) -> Callable[..., Any]:
    found: Any = _module(where)
    for part in where.name.split("."):
        found = getattr(found, part)
    function: Callable[..., Any] = getattr(found, "__plimsoll_function__", found)
    return function


def _module(where: _Where) -> Any:
    if where.module == MAIN:
        return _main(where.file or "")
    try:
        module = importlib.import_module(where.module)
    except ImportError:
        module = None
    file = getattr(module, "__file__", None)
    is_it = module is not None and (where.file is None or file is None or os.path.abspath(file) == where.file)
    if is_it or where.file is None:
        return module
    # A test module is imported by its path, and its name may be another file's here.
    return _from_file(where.module, where.file)


def _from_file(name: str, file: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise CannotReach(f"cannot import {file}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _main(file: str) -> Any:
    """The script's own module, not as `__main__`, but found under that name by what is pickled there."""
    if file.startswith("-m "):
        name = file[3:]
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            raise CannotReach(f"cannot import the module {name}")
        module = importlib.util.module_from_spec(spec)
        module.__name__ = MAIN
        sys.modules["__main__"] = sys.modules[MAIN] = module
        code = spec.loader.get_code(name)  # type: ignore[attr-defined]
        exec(code, module.__dict__)
        return module
    spec = importlib.util.spec_from_file_location(MAIN, file)
    if spec is None or spec.loader is None:
        # A script without `.py`.
        from importlib.machinery import SourceFileLoader

        spec = importlib.util.spec_from_loader(MAIN, SourceFileLoader(MAIN, file))
        assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["__main__"] = sys.modules[MAIN] = module
    spec.loader.exec_module(module)
    return module


def _answer(path: str, value: Any = None, error: BaseException | None = None) -> None:
    text = None
    if error is not None:
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    for sent in (value, error), (None, None):
        try:
            data = pickle.dumps((*sent, text, sent == (None, None) and value is not None))
            break
        except Exception:
            continue
    part = path + ".part"
    Path(part).write_bytes(data)
    os.replace(part, path)


def answer(path: Path) -> Any:
    """What the function returned. Raises what it raised."""
    value, error, text, lost = pickle.loads(path.read_bytes())
    if isinstance(error, CannotReach):
        raise error
    if text is not None:
        raise FunctionFailed(f"the function failed in its own process:\n\n{text}") from error
    if lost:
        raise PlimsollError("the function ended without an error, but its result cannot be pickled; return plain values")
    return value


if __name__ == "__main__":
    from plimsoll._calls import run as _run  # Not `__main__`'s: the pickle names the module.

    _run(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None)
