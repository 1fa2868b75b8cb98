"""A process that has imported what a script imports, and forks one child for each run of it.

Importing torch takes seconds and is the same every time. Nothing here touches the device, so a child
is as fresh as a process of its own: it gets its arguments, environment and session after the fork and
then runs the script from its first line; only the imports of installed packages are there already.
The user's own modules are not imported before the fork, because they may look at the arguments.

The nursery also reports whether a child equals a process of its own: it does where these imports are the first statements of the
script, so that no code of the script could have run before one of them.

One JSON object a line comes in on standard input, a socket, and with it the mounts of the layer that the child is to write
into; one goes out for each run that ended; see `serve`.
"""

from __future__ import annotations

import atexit
import ctypes
import fcntl
import functools
import importlib
import json
import os
import select
import signal
import socket
import stat
import sys
import threading
import types
import weakref

from plimsoll_agent import own_statements, patch
from plimsoll_agent.inputs import worst_batches
from plimsoll_agent.run import frames
from plimsoll_agent.trials import batches
from plimsoll_agent.values import draws

TYPE_CHECKING = False  # As typing has it, which is not imported for this.
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from plimsoll_agent.kinds import Named, Torch

_DEEPEST = 8
_BY_NVML = "PYTORCH_NVML_BASED_CUDA_CHECK"
_WAITING = "OMP_WAIT_POLICY"
"""How threads of the host wait for each other, read when OpenMP is loaded. Children run side by side: who waits must not keep a core that
another needs. To fill 24 blocks' weights with two threads took 4.6 s of processor time beside another run, and 1.7 so."""
# linux/sched.h, linux/prctl.h, linux/capability.h.
_CLONE_NEWNS, _CLONE_NEWIPC = 0x00020000, 0x08000000
_PR_CAPBSET_DROP, _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 24, 47, 4
_CAPABILITY_VERSION_3 = 0x20080522
_CAP_SYS_ADMIN = 21


def serve() -> None:
    """Reads `{"script", "name"}` or `{"module"}` once, then orders, until standard input ends.

    An order is `{"id", "session", "arguments", "environment", "log"}`; the answer `{"id", "code"}` or
    `{"id", "signal"}`, and `"memory"`, the most that it had of the host, in bytes. Orders may come while others run.
    """
    orders, answers = socket.socket(fileno=os.dup(0)), os.fdopen(os.dup(1), "w", 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    program = json.loads(_line(orders)[0])
    if not getattr(sys.flags, "safe_path", False):  # As Python itself does it, once it knows what it runs.
        sys.path.insert(0, os.path.dirname(os.path.abspath(program["script"])) if program.get("script") else os.getcwd())
    # A package that asks whether there is a device would spoil each fork; NVML's answer does not.
    before = {it: os.environ.get(it) for it in (_BY_NVML, _WAITING)}
    os.environ[_BY_NVML] = "1"
    os.environ.setdefault(_WAITING, "PASSIVE")
    environment = dict(os.environ)
    imports_first, speaks_of_compile = _import_what_it_imports(program)
    for name in before:
        os.environ.pop(name, None)
        environment.pop(name)
    imports_first = imports_first and environment == dict(os.environ)
    os.environ.update({name: value for name, value in before.items() if value is not None})
    _prepare()
    ready = {"ready": _is_untouched(), "imports_first": imports_first, "speaks_of_compile": speaks_of_compile}
    print(json.dumps(ready), file=answers, flush=True)
    running: dict[int, Any] = {}
    poll = select.poll()
    poll.register(orders, select.POLLIN | select.POLLHUP)
    while True:
        for fd, _ in poll.poll():
            if fd in running:
                order, pid = running.pop(fd)
                poll.unregister(fd)
                os.close(fd)
                print(json.dumps(dict(_ended(pid), id=order)), file=answers, flush=True)
                continue
            line, mounts = _line(orders)
            if not line:
                for _, pid in running.values():
                    os.kill(pid, signal.SIGKILL)
                return
            order = json.loads(line)
            pid = os.fork()
            if pid == 0:
                orders.close()
                answers.close()
                _enter(mounts)
                live(functools.partial(_become, program, order))
            for mount in mounts:
                os.close(mount)
            pidfd = os.pidfd_open(pid)
            running[pidfd] = (order["id"], pid)
            poll.register(pidfd, select.POLLIN)


def _prepare() -> None:
    """What each child would do again, and what it would do in vain."""
    from plimsoll_agent import agent  # Only there: each child installs it for itself.

    del agent
    draws.share()
    batches.share()
    worst_batches.share()
    _nothing_is_taken_apart()


def _nothing_is_taken_apart() -> None:
    """At the end of its process torch takes apart what it registered, and none of that outlives the process. What others want done
    then, as for a temporary folder, each child does as a process of its own would."""
    for it, info in list(weakref.finalize._registry.items()):  # type: ignore[attr-defined]
        if (getattr(info.func, "__module__", None) or "").split(".")[0] == "torch":
            it.atexit = False


def _line(orders: Any) -> tuple[Any, ...]:
    """One line and what came with it, read byte by byte: nothing may wait in a buffer that `poll` does not see."""
    line, given = bytearray(), []
    while not line.endswith(b"\n"):
        byte, fds, _, _ = socket.recv_fds(orders, 1, 1)
        given += fds
        if not byte:
            return b"", given
        line += byte
    return bytes(line), given


def _enter(mounts: Any) -> None:
    """In the child: what it writes goes into a layer of its own, and it sees nothing of what others wrote.

    Where it cannot go there, it must not run here: then there is no nursery any more, and who ordered the run makes it
    some other way.
    """
    try:
        for mount in mounts:
            here, given = os.getcwd(), [it for it in _given() if it[0] not in mounts]
            libc = ctypes.CDLL(None, use_errno=True)
            if libc.setns(mount, _CLONE_NEWNS) != 0:
                raise OSError(ctypes.get_errno(), "setns")
            os.close(mount)
            os.chdir(here)
            # Where the kernel has none to give, the nursery has none of its own either.
            libc.unshare(_CLONE_NEWIPC)
            _give_up_the_right_to_enter(libc)
            for fd, path, flags in given:
                _open_again(fd, path, flags)
    except OSError:
        os.kill(os.getppid(), signal.SIGKILL)
        os._exit(1)


def _give_up_the_right_to_enter(libc: Any) -> None:
    """The right to come here was lent."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    rights = (ctypes.c_uint32 * 6)()
    libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    if os.geteuid() == 0:
        # Root's other rights stay: effective, permitted and inheritable, of the first 32.
        libc.prctl(_PR_CAPBSET_DROP, _CAP_SYS_ADMIN, 0, 0, 0)
        libc.capget(header, rights)
        for it in range(3):
            rights[it] &= ~(1 << _CAP_SYS_ADMIN)
    libc.capset(header, rights)


def _given() -> list[tuple[int, str, int]]:
    """Folders and files for reading that the nursery was given and passes on: they are of its own layer. An unnamed one belongs to no layer."""
    res = []
    for fd in map(int, os.listdir("/proc/self/fd")):
        try:
            it, flags = os.fstat(fd), fcntl.fcntl(fd, fcntl.F_GETFL)
            is_kind = it.st_nlink and (stat.S_ISDIR(it.st_mode) or stat.S_ISREG(it.st_mode))
            is_for_reading = flags & os.O_PATH or flags & os.O_ACCMODE == os.O_RDONLY
            if is_kind and is_for_reading and os.get_inheritable(fd):
                res.append((fd, os.readlink(f"/proc/self/fd/{fd}"), flags & (os.O_PATH | os.O_NONBLOCK)))
        except OSError:
            pass  # The list's own.
    return res


def _open_again(fd: int, path: str, flags: int) -> None:
    """The same in this layer, where it had come to; what is not here is closed."""
    try:
        again = os.open(path, flags)
    except OSError:
        os.close(fd)
        return
    try:
        os.lseek(again, os.lseek(fd, 0, os.SEEK_CUR), os.SEEK_SET)
    except OSError:
        pass  # It has no place.
    os.dup2(again, fd)
    os.close(again)


def _ended(pid: int) -> Named:
    _, status, usage = os.wait4(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    return {"code" if code >= 0 else "signal": abs(code), "memory": usage.ru_maxrss * 1024}


def _is_untouched() -> bool:
    """Whether a child can still use the device: CUDA was not started by an import, nor asked for the number of devices."""
    torch = sys.modules.get("torch")
    if torch is None or torch.cuda.is_initialized():
        return False
    pid = os.fork()
    if pid == 0:
        os._exit(bool(getattr(torch._C, "_cuda_isInBadFork", bool)()))
    return os.waitpid(pid, 0)[1] == 0


def live(act: Callable[[], object]) -> None:
    """The script from its first line to its end, which is `act`, and everything that runs at exit.

    Then the process is over at once. Python would first take apart all that the nursery has imported, object
    by object, in pages that the child has only borrowed; that costs more than most scripts do.
    """
    code = 0
    try:
        act()
    except SystemExit as end:
        code = _exit_code(end)
    except BaseException as error:
        # As Python does it at the end of a program; the agent looks for it there.
        error.__traceback__ = _without_ours(error.__traceback__)
        sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__
        sys.audit("sys.excepthook", sys.excepthook, type(error), error, error.__traceback__)
        _tell_the_agent(error)
        sys.excepthook(type(error), error, error.__traceback__)
        code = -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
    try:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        _end(code)


def _without_ours(traceback: Any) -> Any:
    """Its frames from the first one on that is the program's."""
    while traceback is not None and traceback.tb_frame.f_code.co_filename == __file__:
        traceback = traceback.tb_next
    return traceback


def _end(code: int) -> None:
    """With this exit code, or by the signal of this number below zero."""
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def _tell_the_agent(error: BaseException) -> None:
    """The exit code that Python's own end of a program would have had."""
    from plimsoll_agent import agent

    current = agent.current()
    if current is not None and not isinstance(error, KeyboardInterrupt):
        current.failures.of_program(error)


def _exit_code(end: SystemExit) -> int:
    """What `sys.exit` was given, as a process's exit code."""
    if end.code is None or isinstance(end.code, int):
        return (end.code or 0) & 0xFF
    print(end.code, file=sys.stderr)
    return 1


def _become(program: Any, order: Any) -> None:
    """The script, as if Python had been started with it."""
    signal.set_wakeup_fd(-1)
    log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ.update(order["environment"])
    os.environ["PLIMSOLL_SESSION"] = order["session"]
    if os.environ.get("PLIMSOLL_EDITS"):
        from plimsoll_agent.inputs import edits

        edits.write(os.environ["PLIMSOLL_EDITS"])
    torch = sys.modules["torch"]
    # An import may have asked for the number of devices, which on a real GPU spoils a fork.
    patch.put(torch.cuda, "_is_in_bad_fork", lambda: False)
    _tell_the_allocator(torch, order["environment"].get("PYTORCH_CUDA_ALLOC_CONF"))
    run(program, order["arguments"])


def run(program: Any, arguments: list[str]) -> None:
    """The script with these arguments, after the imports that were made, with an agent of its own."""
    script, module = program.get("script"), program.get("module")
    sys.argv = [program.get("name", module)] + arguments
    from plimsoll_agent import agent

    agent.install(sys.modules["torch"])
    if module:
        import runpy

        runpy._run_module_as_main(module)  # type: ignore[attr-defined]
        return
    with open(script, "rb") as file:
        code = compile(file.read(), script, "exec")
    main = types.ModuleType("__main__")
    main.__dict__.update(__file__=os.path.abspath(script), __builtins__=__builtins__, __cached__=None)
    sys.modules["__main__"] = main
    exec(code, main.__dict__)


def _tell_the_allocator(torch: Torch, settings: Any) -> None:
    """It read the environment when torch was imported."""
    if settings:
        name = "_accelerator_setAllocatorSettings"
        tell = getattr(torch._C, name, None) or torch._C._cuda_cudaCachingAllocator_set_allocator_settings
        tell(settings)


def _import_what_it_imports(program: Any) -> tuple[Any, ...]:
    """Whether the script would have imported the same, before it did anything else; and whether it speaks of `torch.compile`."""
    import torch

    # The first optimizer of a program imports it: a second and a half, which each child would spend again.
    _import("torch._dynamo", ())
    path = program.get("script")
    if path is None:
        try:
            spec = importlib.util.find_spec(program["module"])
            path = spec.origin if spec is not None else None
        except (ImportError, ValueError, AttributeError):
            path = None
    if path is None:
        return False, False
    imports_first, speaks_of_compile = True, False
    seen = set()
    todo = [(path, 0, False)]
    later = []
    while todo:
        path, depth, is_later = todo.pop(0)
        if path in seen or depth > _DEEPEST:
            continue
        seen.add(path)
        statements = own_statements.of(path)
        imports_first = imports_first and statements.imports_first and (depth == 0 or statements.is_quiet)
        speaks_of_compile = speaks_of_compile or statements.speaks_of_compile
        for all_of_these, are_later in ((statements.first, is_later), (statements.later, True)):
            for name, attributes in all_of_these:
                own = _own_file(name)
                if own is not None:
                    todo.append((own, depth + 1, are_later))
                elif name.split(".")[0] == "plimsoll":
                    pass
                elif are_later:
                    later.append((name, attributes))
                else:
                    _import(name, attributes)
    if speaks_of_compile:
        # The first call of what is compiled imports it: as long again.
        _import("torch._inductor.compile_fx", ())
    loaded = len(sys.modules)
    for name, attributes in later:
        _import(name, attributes)
    del torch
    # What only one of the script's functions imports may not be there in a process of its own.
    return imports_first and loaded == len(sys.modules), speaks_of_compile


def _own_file(name: str) -> Any:
    """The file of a module that the user wrote, None for one that is installed."""
    try:
        spec = importlib.machinery.PathFinder.find_spec(name.split(".")[0], sys.path)
    except (ImportError, ValueError):
        return None
    origin = getattr(spec, "origin", None)
    if origin is None or not origin.endswith(".py") or not frames.is_users(origin):
        return None
    inside = os.path.join(os.path.dirname(origin), *name.split(".")[1:])
    for path in (inside + ".py", os.path.join(inside, "__init__.py"), origin):
        if "." in name and os.path.isfile(path):
            return path
    return origin


def _import(name: str, attributes: Any) -> None:
    try:
        module = importlib.import_module(name)
        for attribute in attributes:
            # `from package import Name` loads lazily what it names.
            getattr(module, attribute, None)
    except BaseException:  # The script will meet it, or has a way around it.
        pass
