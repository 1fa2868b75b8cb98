"""A process on the phantom that has imported torch, and forks one child for each script.

Importing torch takes seconds and is the same every time; nothing has touched the device before the fork,
so a child is as fresh as a process of its own, except for what torch reads from the environment while it
is imported (tests of that start a process).

Reads one JSON object a line from standard input, answers each with one on standard output.
"""

import ctypes
import gc
import json
import os
import runpy
import signal
import sys
import time
import traceback


def main():
    import torch

    assert not torch.cuda.is_initialized()
    gc.collect()
    gc.freeze()  # Or each child's collector would write into, and so copy, all that is here.
    for line in sys.stdin:
        order = json.loads(line)
        pid = os.fork()
        if pid == 0:
            child(order)
        print(json.dumps({"code": wait(pid, order["seconds"])}), flush=True)


def wait(pid, seconds):
    """The child's exit code, as `subprocess` counts it."""
    end = time.monotonic() + seconds
    while True:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        if end < time.monotonic():
            os.killpg(pid, signal.SIGKILL)
            end = float("inf")
        time.sleep(0.005)


def child(order):
    os.setpgid(0, 0)
    os.chdir(order["folder"])
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.environ.update(order["environment"])
    sys.argv = ["script.py"]
    sys.path[0] = order["folder"]
    code = 0
    try:
        runpy.run_path("script.py", run_name="__main__")
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    with open("report.json", "w") as file:
        file.write(report())
    os._exit(code)


def report():
    """The phantom's own account of the process."""
    function = ctypes.CDLL(None)["plimsoll_phantom_report"]
    function.argtypes, function.restype = [ctypes.c_char_p, ctypes.c_size_t], ctypes.c_size_t
    buffer = ctypes.create_string_buffer(function(None, 0) + 4096)
    function(buffer, len(buffer))
    return buffer.value.decode()


if __name__ == "__main__":
    main()
