"""A Python that has imported torch already, in the place of `python` in the commands of tests.

Importing torch takes seconds of a processor, transformers and lightning three times as much, and it is the same for
each of several hundred small scripts. So a process that has done it (`serve`, below) forks a child for each of them,
and `python3` is a small program (CLIENT) that hands over its arguments, its environment and its standard streams, waits,
and ends as the child did. What starts it sees a Python that is quick.

There are two: one with the libraries of the phantom, and a bare one for what runs without.

A child is as fresh as a process of its own, but for what torch read from the environment while it was imported: nothing
has touched the device before the fork, and the agent is installed after it, as a child of `plimsoll fit`'s own nursery
installs it. A command whose start is looked at itself (options of Python, `sitecustomize`, another torch, signals) names
COLD, the interpreter. `PLIMSOLL_COLD=1` makes every Python of the tests a cold one: `make soak` runs them so.
"""

import _imp
import ast
import atexit
import ctypes
import gc
import glob
import json
import os
import runpy
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import types
import weakref
from importlib.machinery import SourceFileLoader

# Imported before the fork where a script imports them: large, and without a hand on the device.
HEAVY = ("torchvision", "transformers", "lightning", "accelerate")

FOLDER = "PLIMSOLL_TESTS_WARM"
"""The variable that says to pytest's workers where the servers are."""

CLIENT = """#!{cold} -IS
import os, re, signal, sys
COLD, SOCKETS = {cold!r}, {socket!r}
# What has torch is worth handing over: scripts, modules of one's own, and text.
WORTH = re.compile(r"^\\s*(?:import|from)\\s.*\\b(?:torch|{heavy}|plimsoll)\\b|plimsoll_agent.nursery", re.MULTILINE)

def order(words):
    options, words = [], list(words)
    while words[:1] in (["-u"], ["-P"]):
        options.append(words.pop(0))
    kind, text = None, ""
    try:
        if words and not words[0].startswith("-"):
            kind, text = "script", open(words[0]).read()
        elif words[:1] == ["-m"] and len(words) > 1:
            words = words[1:]
            is_theirs = words[0].startswith(("torch.", "plimsoll."))
            kind, text = "module", "import torch" if is_theirs else open(words[0].replace(".", "/") + ".py").read()
        elif words[:1] == ["-c"] and len(words) > 1 and "--multiprocessing-fork" not in words:
            kind, text = "text", words[1]
            words = words[1:]
    except (OSError, UnicodeDecodeError):
        return None
    if kind is None or not WORTH.search(text):
        return None
    here = os.path.dirname(words[0]) if kind == "script" else ""
    for folder in [here or ".", *os.environ.get("PYTHONPATH", "").split(":")]:
        theirs = os.path.exists(folder + "/sitecustomize.py") and not os.path.exists(folder + "/plimsoll_agent")
        if folder and (theirs or os.path.exists(folder + "/torch")):
            return None  # Another torch, or something that is run before it.
    return dict(kind=kind, words=words, options=options, cwd=os.getcwd(), environment=dict(os.environ))

def main():
    words = sys.argv[1:]
    given = order(words)
    path = SOCKETS + ("/phantom" if "libcuda.so.1" in os.environ.get("LD_PRELOAD", "") else "/bare")
    if given is None or not os.path.exists(path):
        os.execv(COLD, [COLD, *words])
    import json, socket, struct
    os.unsetenv("PLIMSOLL_SESSION")  # That it asks somebody is no matter of the run.
    server = socket.socket(socket.AF_UNIX)
    server.connect(path)
    text = json.dumps(given).encode()
    # The private layer that this process writes into is its namespaces'.
    spaces = [os.open("/proc/self/ns/" + it, os.O_RDONLY) for it in ("user", "mnt")]
    socket.send_fds(server, [struct.pack("<I", len(text))], [0, 1, 2, *spaces])
    server.sendall(text)
    for it in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(it, lambda number, _: server.sendall(bytes([number])))
    answer = server.recv(4)
    status = struct.unpack("<i", answer)[0] if len(answer) == 4 else 1
    if status < 0:
        import resource
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if -status not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)

main()
"""


class Warm:
    """The servers of all of pytest's workers, each started when a command first needs it, and the `python3` that asks them. Whoever starts pytest
    owns them: they end with that process."""

    def __init__(self, cold):
        self.cold = cold
        self.is_owner = FOLDER not in os.environ
        self.folder = os.environ.get(FOLDER) or tempfile.mkdtemp(prefix="plimsoll-warm-")
        self.python = os.path.join(self.folder, "python3")
        self._pipe = os.path.join(self.folder, "life")
        if self.is_owner:
            os.environ[FOLDER] = self.folder
            os.mkfifo(self._pipe)
            self._life = os.open(self._pipe, os.O_RDWR)
            with open(self.python, "w") as file:
                file.write(CLIENT.format(cold=cold, socket=self.folder, heavy="|".join(HEAVY)))
            os.chmod(self.python, 0o755)

    def is_running(self, name):
        return os.path.exists(os.path.join(self.folder, name + ".listens"))

    def start(self, name, environment, agent):
        """With the folder of the agent that its children import. `phantom` in the environment of a process on the phantom, whose libraries are loaded once, for all; `bare` in
        one without it."""
        door, process = os.path.join(self.folder, name), None
        try:
            os.close(os.open(door + ".begun", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            pass  # Another worker starts it.
        else:
            # A name that is nobody's file: its frames are not the user's, for the agent and for the report.
            text = f"exec(compile(open({__file__!r}).read(), '<frozen warm>', 'exec'))"
            words = [self.cold, "-c", text, "serve", door, self.python, agent]
            life = os.open(self._pipe, os.O_RDONLY)
            process = subprocess.Popen(words, env=environment, stdin=life, stdout=subprocess.DEVNULL)
            os.close(life)
        until = time.monotonic() + 300
        while not self.is_running(name):
            assert process is None or process.poll() is None, "the warm Python did not start"
            assert time.monotonic() < until, "another worker did not start the warm Python"
            time.sleep(0.05)

    def end(self):
        if self.is_owner:
            os.close(self._life)
            shutil.rmtree(self.folder, ignore_errors=True)


def serve(path, python, agent):
    """Answers clients until standard input ends."""
    import torch
    import torch._dynamo  # noqa: F401  # Which the first optimizer of a script would import.

    assert not torch.cuda.is_initialized()
    compile_once(agent)
    # At the end of a process torch takes each of its operators out of a table that ends with it: a tenth of a small script's time.
    for it in list(weakref.finalize._registry.values()):
        it.atexit = False
    sys.executable = python
    door = socket.socket(socket.AF_UNIX)
    door.bind(path)
    door.listen(64)
    os.close(os.open(path + ".listens", os.O_CREAT))
    Server(door, 0).run()


def compile_once(agent):
    """The modules below a folder, for all children: each would compile them again, because nothing is written beside them. The caches of other
    workers have the same files."""
    codes = {}
    for path in glob.glob(os.path.join(agent, "**", "*.py"), recursive=True):
        with open(path, "rb") as file:
            codes[in_bundle(path)] = (os.path.getsize(path), compile(file.read(), path, "exec", dont_inherit=True))
    of_disk = SourceFileLoader.get_code

    def get_code(self, name):
        size, code = codes.get(in_bundle(self.path), (None, None))
        if code is None or size != os.path.getsize(self.path):
            return of_disk(self, name)
        _imp._fix_co_filename(code, self.path)
        return code

    SourceFileLoader.get_code = get_code


def in_bundle(path):
    """From the folder on that is named by what lies in it."""
    return path.rpartition("/bundle-")[2]


class Server:
    """One that has imported some packages. What a script imports besides is another one's, below it, so that no script
    sees what another one imported."""

    def __init__(self, door, life):
        self.door, self.life = door, life
        self.poll = select.poll()
        self.poll.register(door, select.POLLIN)
        self.poll.register(life, select.POLLHUP)
        self.running = {}
        self.others = {}
        self.imported = set()

    def run(self):
        gc.collect()
        gc.freeze()  # Or each child's collector would write into, and so copy, all that is here.
        while True:
            for fd, _ in self.poll.poll():
                if fd == self.life:
                    for pid, _, _ in self.running.values():
                        os.killpg(pid, signal.SIGKILL)
                    os._exit(0)
                if fd == self.door.fileno():
                    self.receive()
                elif fd in self.running:
                    self.tell(fd)

    def receive(self):
        if self.life == 0:
            client, _ = self.door.accept()
            head, fds, _, _ = socket.recv_fds(client, 4, 5)
            (length,) = struct.unpack("<I", head)
            text = b""
            while len(text) < length:
                text += client.recv(length - len(text))
            fds = [client.detach(), *fds]
        else:
            text, fds, _, _ = socket.recv_fds(self.door, 1 << 20, 6)
        order = json.loads(text)
        wanted = imports_of(order)
        roots = tuple(sorted({it.split()[1].split(".")[0] for it in wanted}))
        if self.life == 0 and roots:
            self.pass_on(roots, text, fds)
        else:
            self.start(order, wanted, fds)

    def pass_on(self, roots, text, fds):
        if roots not in self.others:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            life, kept = os.pipe()
            if os.fork() == 0:
                os.close(kept)
                ours.close()
                for it in fds:
                    os.close(it)
                Server(theirs, life).run()
            theirs.close()
            os.close(life)
            self.others[roots] = (ours, kept)
        socket.send_fds(self.others[roots][0], [text], fds)
        for it in fds:
            os.close(it)

    def start(self, order, wanted, fds):
        for statement in wanted:
            if statement not in self.imported:
                self.imported.add(statement)
                try:
                    exec(statement, {})
                except BaseException:
                    pass  # The script will meet it.
                gc.freeze()
        client, *given = fds
        pid = os.fork()
        if pid == 0:
            self.door.close()
            enter(given[3:])
            live(order, given[:3])
        for it in given:
            os.close(it)
        for fd in (ended := os.pidfd_open(pid), client):
            self.running[fd] = (pid, ended, client)
            self.poll.register(fd, select.POLLIN)

    def tell(self, fd):
        """The child ended, or the client has something for it: a signal, or its own end."""
        pid, ended, client = self.running[fd]
        if fd == client:
            said = os.read(client, 64)
            for number in said or [signal.SIGKILL]:
                try:
                    os.killpg(pid, number)
                except ProcessLookupError:
                    pass
            if said:
                return
            self.poll.unregister(client)
            return
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        for it in (ended, client):
            del self.running[it]
            try:
                self.poll.unregister(it)
            except KeyError:
                pass
        try:
            os.write(client, struct.pack("<i", status))
        except BrokenPipeError:
            pass
        os.close(ended)
        os.close(client)


def imports_of(order):
    """The statements that import something heavy, of the script and of no module beside it."""
    try:
        text = order["words"][0]
        if order["kind"] == "script":
            text = open(os.path.join(order["cwd"], text)).read()
        elif order["kind"] == "module":
            text = open(os.path.join(order["cwd"], text.replace(".", "/") + ".py")).read()
        elif "plimsoll_agent.nursery" in text:  # Which is told its script later; here it lies in the folder.
            text = "\n".join(open(it).read() for it in glob.glob(os.path.join(order["cwd"], "*.py")))
        nodes = [it for it in ast.walk(ast.parse(text)) if isinstance(it, (ast.Import, ast.ImportFrom))]
    except (OSError, SyntaxError, ValueError):
        return []
    found = []
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            found += [ast.unparse(node)] if not node.level and (node.module or "").split(".")[0] in HEAVY else []
        else:
            found += ["import " + it.name for it in node.names if it.name.split(".")[0] in HEAVY]
    return found


def enter(spaces):
    """In the child: the client's files, and the layer that its writes go into (setns(2))."""
    for name, fd in zip(("user", "mnt"), spaces):
        if os.fstat(fd).st_ino != os.stat("/proc/self/ns/" + name).st_ino:
            if ctypes.CDLL(None, use_errno=True).setns(fd, 0) != 0:
                raise OSError(ctypes.get_errno(), "cannot enter the client's " + name)
        os.close(fd)


def live(order, streams):
    """In the child: the script from its first line to its end, and everything that runs at exit."""
    os.setsid()
    for number, fd in enumerate(streams):
        os.dup2(fd, number)
        os.close(fd)
    code = 0
    try:
        become(order)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        if code == 1 and not isinstance(end.code, int):
            print(end.code, file=sys.stderr)
    except BaseException as error:
        # As Python does it at the end of a program; the agent looks for it there.
        trace = error.__traceback__
        while trace is not None and is_ours(trace.tb_frame.f_code.co_filename):
            trace = trace.tb_next
        sys.last_type, sys.last_value, sys.last_traceback = type(error), error.with_traceback(trace), trace
        sys.excepthook(type(error), error, trace)
        code = -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
    try:
        threading._shutdown()
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError):
                code = code or 120
        if code < 0:
            signal.signal(-code, signal.SIG_DFL)
            os.kill(os.getpid(), -code)
    finally:
        os._exit(code & 0xFF)


def is_ours(file):
    return file in ("<frozen warm>", "<frozen runpy>")


def become(order):
    """The script, as if Python had been started with it."""
    environment, words, cwd = order["environment"], order["words"], order["cwd"]
    os.chdir(cwd)
    for name in set(os.environ) - set(environment):
        del os.environ[name]
    os.environ.update(environment)
    if "-u" in order["options"]:
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(write_through=True)
    kind = order["kind"]
    sys.argv = ["-c" if kind == "text" else words[0], *words[1:]]
    first = os.path.dirname(os.path.realpath(words[0])) if kind == "script" else cwd if kind == "module" else ""
    more = [it for it in environment.get("PYTHONPATH", "").split(os.pathsep) if it]
    sys.path[:] = [*([] if "-P" in order["options"] else [first]), *more, *(it for it in sys.path[1:] if it not in more)]
    sys.dont_write_bytecode = bool(environment.get("PYTHONDONTWRITEBYTECODE"))
    main = types.ModuleType("__main__")
    main.__dict__.update(__builtins__=__builtins__, __cached__=None)
    if kind == "script":
        with open(words[0], "rb") as file:
            code = compile(file.read(), words[0], "exec", dont_inherit=True)
        main.__dict__.update(__file__=words[0], __loader__=SourceFileLoader("__main__", words[0]))
    elif kind == "module":
        name, spec, code = runpy._get_module_details(words[0])
        main.__dict__.update(__file__=code.co_filename, __loader__=spec.loader, __spec__=spec, __package__=spec.parent)
        sys.argv[0] = code.co_filename
    else:
        code = compile(words[0], "<string>", "exec", dont_inherit=True)
    sys.modules["__main__"] = main
    torch = sys.modules["torch"]
    if "OMP_NUM_THREADS" in environment:
        torch.set_num_threads(int(environment["OMP_NUM_THREADS"]))
    settings = environment.get("PYTORCH_CUDA_ALLOC_CONF") or environment.get("PYTORCH_ALLOC_CONF")
    if settings:
        torch._C._accelerator_setAllocatorSettings(settings)
    if torch.cuda._is_in_bad_fork():
        # An import asked for the number of devices, which on a real GPU would spoil the fork.
        torch.cuda._is_in_bad_fork = lambda: False
    watched = environment.get("PLIMSOLL_SESSION") and any(os.path.isdir(os.path.join(it, "plimsoll_agent")) for it in more)
    if watched and environment.get("PLIMSOLL_MODE") != "nursery":
        from plimsoll_agent import agent

        agent.install(torch)
    exec(code, main.__dict__)


if __name__ == "__main__" and sys.argv[1:2] == ["serve"]:
    serve(*sys.argv[2:])
