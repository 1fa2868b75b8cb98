"""Every way to write that we know of, one after the other, as a script that a person might try.

It is run in the world that `place.py` lays out: each operation has a folder of its own with the files `a` (16 KiB), `b`, `d/x`, `link` and what it asks
for. It tells the harness how each went by a datagram, because nothing that it prints or writes need arrive. Standard library only; torch is
imported at the end, and only if the harness wants a training.
"""

import array
import ctypes
import fcntl
import json
import mmap
import os
import shutil
import signal
import socket
import sqlite3
import stat
import struct
import subprocess
import sys
import tempfile
import time

NEW = b"changed by the script\n"
OPERATIONS = {}
LIBC = ctypes.CDLL(None, use_errno=True)
HERE = -100  # AT_FDCWD
GIVEN = json.loads(os.environ.get("WORLD", "{}"))
"""What the harness says: `port`, `mark` (a word in the name of all that is not in the world), `folder`, `home`, `pid` of a process outside with
`held` open for writing in it, `inherited` (descriptors), `static` (a program), `torch`, `without` (operations)."""


class Absent(Exception):
    """This machine, user or command has no such thing."""


def operation(function):
    OPERATIONS[function.__name__.strip("_").replace("_", "-")] = function
    return function


def call(number, *arguments):
    """A system call that Python does not have."""
    words = [it.encode() if isinstance(it, str) else it for it in arguments]
    res = LIBC.syscall(ctypes.c_long(number), *(ctypes.c_long(it) if isinstance(it, int) else it for it in words))
    if res < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return res


def libc(name, *arguments):
    res = getattr(LIBC, name)(*(it.encode() if isinstance(it, str) else it for it in arguments))
    if res == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return res


def write(path, data=NEW):
    with open(path, "wb") as file:
        file.write(data)


def run(*words, **options):
    if shutil.which(words[0]) is None:
        raise Absent(f"no {words[0]}")
    ended = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, **options)
    if ended.returncode:
        raise OSError(0, f"{words[0]} ended with {ended.returncode}: {ended.stderr.decode(errors='replace')[-200:]}")


def need_root():
    if os.geteuid() != 0:
        raise Absent("only root may")


def forked(action):
    """In a child, because it cannot be undone."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            action()
            code = 0
        except OSError as error:
            code = min(error.errno or 1, 255)
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code:
        raise OSError(abs(code), os.strerror(abs(code)))


# Contents.


@operation
def overwrite():
    write("a")


@operation
def append():
    with open("a", "ab") as file:
        file.write(NEW)


@operation
def open_truncating():
    os.close(os.open("a", os.O_RDONLY | os.O_TRUNC))


@operation
def truncate():
    os.truncate("a", 3)
    with open("b", "r+b") as file:
        os.ftruncate(file.fileno(), 1 << 40)  # Sparse.


@operation
def positioned():
    fd = os.open("a", os.O_RDWR)
    os.pwrite(fd, NEW, 100)
    os.pwritev(fd, [NEW, NEW], 4000)


@operation
def fallocate():
    fd = os.open("a", os.O_RDWR)
    os.posix_fallocate(fd, 0, 1 << 20)


def _fallocate(mode):
    fd = os.open("a", os.O_RDWR)
    if LIBC.fallocate(fd, mode, ctypes.c_long(4096), ctypes.c_long(4096)) != 0:
        raise OSError(ctypes.get_errno(), "fallocate")


@operation
def punch_hole():
    _fallocate(3)


@operation
def zero_range():
    _fallocate(0x10)


@operation
def collapse_range():
    _fallocate(8)


@operation
def mapped():
    with open("a", "r+b") as file, mmap.mmap(file.fileno(), 0) as data:
        data[5:10] = b"XXXXX"
        data.flush()


@operation
def numpy_memmap():
    try:
        import numpy
    except ImportError:
        raise Absent("no numpy") from None
    data = numpy.memmap("a", dtype="u1", mode="r+")
    data[:8] = 7
    data.flush()


@operation
def sendfile():
    os.sendfile(os.open("b", os.O_WRONLY), os.open("a", os.O_RDONLY), 0, 100)


@operation
def copy_file_range():
    os.copy_file_range(os.open("a", os.O_RDONLY), os.open("b", os.O_WRONLY), 100)


@operation
def splice():
    ours, theirs = os.pipe()
    os.write(theirs, NEW)
    os.splice(ours, os.open("b", os.O_WRONLY), len(NEW))


@operation
def clone_range():
    try:
        fcntl.ioctl(os.open("b", os.O_WRONLY), 0x40049409, os.open("a", os.O_RDONLY))  # FICLONE
    except OSError:
        write("b")  # Few file systems can; what cp does then.


@operation
def asynchronous():
    context = ctypes.c_ulong(0)
    call(206, 4, ctypes.byref(context))  # io_setup
    fd, data = os.open("a", os.O_WRONLY), ctypes.create_string_buffer(NEW)
    block = ctypes.create_string_buffer(struct.pack("=QIIHhIQQqQII", 0, 0, 0, 1, 0, fd, ctypes.addressof(data), len(NEW), 0, 0, 0, 0), 64)
    blocks = (ctypes.c_void_p * 1)(ctypes.addressof(block))
    call(209, context.value, 1, blocks)  # io_submit
    call(208, context.value, 1, 1, ctypes.create_string_buffer(32), None)  # io_getevents


@operation
def io_uring():
    _static("uring")


@operation
def static_program():
    _static("raw")


def _static(mode):
    if not GIVEN.get("static"):
        raise Absent("no compiler")
    ended = subprocess.run([GIVEN["static"], mode, "a", "b"], env={}, capture_output=True)
    if ended.returncode:
        raise OSError(ended.returncode, os.strerror(ended.returncode))


@operation
def in_place():
    run("sed", "-i", "s/was/is/", "b")


# Names.


@operation
def unlink():
    os.unlink("a")
    os.rmdir("empty")


@operation
def remove_a_tree():
    shutil.rmtree("d")


@operation
def rename():
    os.rename("a", "b")
    os.rename("d", "e")


@operation
def exchange():
    call(316, HERE, "a", HERE, "b", 2)  # renameat2, RENAME_EXCHANGE


@operation
def rename_to_nothing():
    call(316, HERE, "a", HERE, "c", 1)  # RENAME_NOREPLACE
    call(316, HERE, "b", HERE, "w", 4)  # RENAME_WHITEOUT


@operation
def hard_link():
    os.link("a", "h")
    write("h")


@operation
def hard_linked():
    write("twin")  # The scene has it as another name of `a`.


@operation
def nameless_file():
    fd = os.open(".", os.O_TMPFILE | os.O_RDWR, 0o600)
    os.write(fd, NEW)
    call(265, HERE, f"/proc/self/fd/{fd}", HERE, "named", 0x400)  # linkat, AT_SYMLINK_FOLLOW


@operation
def nameless_file_by_descriptor():
    fd = os.open(".", os.O_TMPFILE | os.O_RDWR, 0o600)
    try:
        call(265, fd, "", HERE, "named", 0x1000)  # AT_EMPTY_PATH
    except OSError:
        need_root()
        raise


@operation
def symbolic_links():
    write("link")
    os.symlink("a", "s")
    os.unlink("link")
    os.symlink("b", "link")


@operation
def out_of_the_project():
    write(os.path.join("out", "far"))
    os.mkdir(os.path.join("out", "made"))


@operation
def folders():
    os.makedirs("n/e/w")
    write("d/new")


@operation
def special_files():
    os.mkfifo("pipe")
    socket.socket(socket.AF_UNIX).bind("s")
    need_root()
    os.mknod("null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    write("null")


@operation
def existing_pipe():
    os.write(os.open("fifo", os.O_RDWR | os.O_NONBLOCK), NEW)
    os.chmod("fifo", 0o600)


# What is written beside names and contents.


@operation
def modes():
    os.chmod("a", 0o600)
    os.chmod("d", 0o700)
    os.fchmod(os.open("b", os.O_RDONLY), 0o4755)


@operation
def owners():
    need_root()
    os.chown("a", 1, 1)
    os.lchown("link", 1, 1)
    os.fchown(os.open("b", os.O_RDONLY), 2, 2)


@operation
def own_group():
    os.chown("a", os.getuid(), os.getgid())


@operation
def times():
    os.utime("a", (1, 1))
    os.utime(os.open("b", os.O_RDONLY), (1, 1))
    os.utime("link", (1, 1), follow_symlinks=False)
    os.utime("d")


@operation
def attributes():
    os.setxattr("a", "user.new", b"1")
    os.setxattr(os.open("b", os.O_RDONLY), "user.new", b"1")
    os.removexattr("a", "user.old")


@operation
def attributes_of_root():
    need_root()
    os.setxattr("a", "trusted.new", b"1")
    os.setxattr("link", "trusted.new", b"1", follow_symlinks=False)
    os.setxattr("b", "security.capability", bytes.fromhex("0100000200040000000000000000000000000000"))


@operation
def access_list():
    entry = lambda tag, mode, who=0xFFFFFFFF: struct.pack("<HHI", tag, mode, who)  # noqa: E731
    os.setxattr("a", "system.posix_acl_access", struct.pack("<I", 2) + entry(1, 6) + entry(2, 6, 1) + entry(4, 4) + entry(16, 6) + entry(32, 4))


@operation
def chattr():
    fd = os.open("a", os.O_RDONLY)
    flags = array.array("l", [0])
    fcntl.ioctl(fd, 0x80086601, flags)  # FS_IOC_GETFLAGS
    flags[0] ^= 0x80 | 0x40  # noatime, nodump
    fcntl.ioctl(fd, 0x40086602, flags)


@operation
def inode_version():
    for number in 0x40087602, 0x40086604:  # FS_IOC_SETVERSION, EXT4_IOC_SETVERSION
        fcntl.ioctl(os.open("a", os.O_RDONLY), number, array.array("i", [4711]))


@operation
def extended_attributes_of_the_file_system():
    fd, attributes = os.open("a", os.O_RDONLY), bytearray(28)
    fcntl.ioctl(fd, 0x801C581F, attributes)  # FS_IOC_FSGETXATTR
    attributes[0] |= 0x80  # nodump
    fcntl.ioctl(fd, 0x401C5820, attributes)


# Other ways to the same file.


@operation
def by_path_descriptor():
    fd = os.open("a", os.O_PATH)
    write(f"/proc/self/fd/{fd}")
    os.chmod(f"/proc/self/fd/{os.open('b', os.O_PATH)}", 0o600)


@operation
def reopened_for_writing():
    fd = os.open("a", os.O_RDONLY)
    write(f"/proc/self/fd/{fd}")
    write(f"/dev/fd/{os.open('b', os.O_RDONLY)}")
    os.truncate(f"/proc/thread-self/fd/{fd}", 1)


@operation
def by_proc():
    write("/proc/self/cwd/a")
    write("/proc/self/root" + os.path.abspath("b"))


@operation
def by_folder_descriptor():
    folder = os.open("d", os.O_RDONLY)
    os.close(os.open("x", os.O_WRONLY | os.O_TRUNC, dir_fd=folder))
    os.mkdir("made", dir_fd=folder)
    call(437, folder, "x", ctypes.create_string_buffer(struct.pack("QQQ", os.O_RDWR | os.O_TRUNC, 0, 8)), 24)  # openat2, RESOLVE_BENEATH


@operation
def fchdir():
    os.fchdir(os.open("d", os.O_RDONLY))
    write("x")
    write("../a")


@operation
def deleted_folder():
    os.mkdir("gone")
    os.chdir("gone")
    os.rmdir("../gone")
    write("../a")


@operation
def by_handle():
    need_root()
    handle, mount = ctypes.create_string_buffer(struct.pack("Ii", 128, 0), 8 + 128), ctypes.c_int()
    call(303, HERE, "a", handle, ctypes.byref(mount), 0)  # name_to_handle_at
    fd = call(304, os.open("/", os.O_RDONLY), handle, os.O_WRONLY)  # open_by_handle_at
    os.write(fd, NEW)


@operation
def cloned_mount():
    need_root()
    tree = call(428, HERE, ".", 1)  # open_tree, OPEN_TREE_CLONE
    os.close(os.open("a", os.O_WRONLY | os.O_TRUNC, dir_fd=tree))


@operation
def bind_mount():
    words = ["-m"] if os.geteuid() == 0 else ["-Urm"]
    run("unshare", *words, "sh", "-c", "mount --bind d empty && echo x > empty/x && echo y > a")


@operation
def the_disk_itself():
    need_root()
    device = next(line.split()[0] for line in open("/proc/mounts") if line.split()[1] == "/" and line.startswith("/dev/"))
    run("unshare", "-m", "sh", "-c", f"mount {device} empty && echo x > empty/{os.path.abspath('a')}")


@operation
def chroot():
    need_root()
    inside = "/" + os.path.relpath(os.path.abspath("a"), GIVEN["folder"])

    def action():
        os.chroot(GIVEN["folder"])
        write(inside)

    forked(action)


@operation
def user_namespace():
    run("unshare", "-Ur", "sh", "-c", "echo x > a; rm b; chmod 700 d")


@operation
def cleared_environment():
    run("env", "-i", "/bin/sh", "-c", "echo x > a; rm b")


@operation
def isolated_python():
    run(sys.executable, "-I", "-S", "-c", "open('a', 'w').write('x')")


@operation
def setuid_copy():
    program = GIVEN.get("static") or "/bin/true"
    shutil.copy(program, "copy")
    os.chmod("copy", 0o6755)
    subprocess.run(["./copy", "raw", "a", "b"], check=True)


@operation
def program_in_memory():
    if not GIVEN.get("static"):
        raise Absent("no compiler")
    fd = os.memfd_create("program")
    with open(GIVEN["static"], "rb") as file:
        os.write(fd, file.read())
    subprocess.run([f"/proc/self/fd/{fd}", "raw", "a", "b"], pass_fds=[fd], check=True)


# What was open before.


def _inherited(name):
    fd, inode = GIVEN["inherited"][name]
    try:
        there = os.fstat(fd).st_ino == inode
    except OSError:
        there = False
    if not there:
        raise Absent("not handed on")
    return fd


@operation
def inherited_folder():
    fd = _inherited("folder")
    os.close(os.open("new", os.O_CREAT | os.O_WRONLY, 0o600, dir_fd=fd))
    os.close(os.open("a", os.O_WRONLY | os.O_TRUNC, dir_fd=fd))
    os.unlink("b", dir_fd=fd)


@operation
def inherited_file():
    fd = _inherited("file")
    os.fchmod(fd, 0o600)
    os.truncate(f"/proc/self/fd/{fd}", 1)
    write(f"/proc/self/fd/{fd}")


@operation
def standard_input():
    _inherited("stdin")
    write("/dev/stdin")


@operation
def neighbours_descriptor():
    write(f"/proc/{GIVEN['pid']}/fd/{GIVEN['held']}")


@operation
def neighbours_descriptor_taken():
    fd = call(438, os.pidfd_open(GIVEN["pid"]), GIVEN["held_for_taking"], 0)  # pidfd_getfd
    os.write(fd, NEW)


@operation
def neighbours_root():
    write(f"/proc/{GIVEN['pid']}/root{os.path.abspath('a')}")


@operation
def neighbours_folder():
    write(f"/proc/{GIVEN['pid']}/cwd/{os.path.relpath(os.path.abspath('a'), GIVEN['home'])}")


@operation
def neighbours_mounts():
    need_root()
    run("nsenter", "-t", str(GIVEN["pid"]), "-m", "sh", "-c", f"echo x > {os.path.abspath('a')}")


# Programs of others.


@operation
def sqlite_with_a_log():
    connection = sqlite3.connect("db")
    connection.execute("pragma journal_mode=wal")
    connection.execute("insert into t values (2)")
    connection.commit()


@operation
def sqlite():
    connection = sqlite3.connect("db")
    connection.execute("insert into t values (2)")
    connection.commit()
    connection.execute("vacuum")


@operation
def git():
    if not os.path.isdir(".git"):
        raise Absent("no git")
    who = ("-c", "user.name=n", "-c", "user.email=e@x", "-c", "safe.directory=*")
    write("a")
    run("git", *who, "commit", "-qam", "second")
    run("git", *who, "gc", "-q")


@operation
def archives():
    run("tar", "cf", "t.tar", "d")
    run("cp", "-a", "d", "copy")
    run("gzip", "-f", "a")


# Beside the file system.


@operation
def temporary_files():
    for folder in None, "/tmp", "/var/tmp", "/dev/shm":
        if folder is None or os.access(folder, os.W_OK):
            with tempfile.NamedTemporaryFile(dir=folder, prefix=GIVEN["mark"], delete=False) as file:
                file.write(NEW)


@operation
def shared_memory():
    fd = os.open(f"/dev/shm/{GIVEN['mark']}-shared", os.O_CREAT | os.O_RDWR, 0o600)
    os.write(fd, NEW)
    LIBC.sem_open.restype = ctypes.c_void_p
    LIBC.sem_open(f"/{GIVEN['mark']}-semaphore".encode(), os.O_CREAT, 0o600, 1)


@operation
def system_v():
    key = GIVEN["key"]
    libc("shmget", key, 4096, 0o1600)
    libc("semget", key, 1, 0o1600)
    libc("msgget", key, 0o1600)


@operation
def message_queue():
    call(240, GIVEN["mark"] + "-queue", os.O_CREAT | os.O_RDWR, 0o600, None)  # mq_open


@operation
def control_group():
    need_root()
    os.mkdir(os.path.join(_control_groups(), GIVEN["mark"]))


def _control_groups():
    for folder in "/sys/fs/cgroup/unified", "/sys/fs/cgroup", "/sys/fs/cgroup/freezer":
        if os.path.exists(os.path.join(folder, "cgroup.procs")):
            return folder
    raise Absent("no control groups")


@operation
def daemon():
    def action():
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            for it in range(3):
                os.close(it)
            for _ in range(600):
                time.sleep(0.1)
                write("late")
                write("a")

    forked(action)


@operation
def under_nohup():
    if shutil.which("setsid") is None:
        raise Absent("no setsid")
    subprocess.Popen(["setsid", "nohup", "sh", "-c", "sleep 0.5; echo x > a; exec sleep 60"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


# The end of the world.


@operation
def plimsolls_own_files():
    """Code that the next real run would load, and what other runs keep."""
    refused = None
    for folder, folders, files in os.walk(os.path.join(GIVEN["home"], ".cache/plimsoll")):
        folders[:] = [it for it in folders if it not in ("sessions", "layers", "bytecode")]
        for name in [*files, "json.py", "usercustomize.py", "libleft.so", "__pycache__/sitecustomize.cpython-311.pyc"]:
            try:
                os.makedirs(os.path.dirname(os.path.join(folder, name)), exist_ok=True)
                with open(os.path.join(folder, name), "ab") as file:
                    file.write(NEW)
            except OSError as error:
                refused = error
    if refused is not None:
        raise refused


class TooFar(Exception):
    """What lies in the world leads out of it: whoever removed that might remove all of the machine."""


def _look_for_the_machine(folder):
    for above, folders, _ in os.walk(folder):
        if "etc" in folders and os.path.exists(os.path.join(above, "etc/passwd")):
            raise TooFar(f"{above} shows the machine; it was not removed")


@operation
def remove_the_caches():
    _look_for_the_machine(os.path.join(GIVEN["home"], ".cache"))
    run("rm", "-rf", os.path.join(GIVEN["home"], ".cache"))


@operation
def remove_the_home():
    _look_for_the_machine(GIVEN["home"])
    run("rm", "-rf", GIVEN["home"])


def everything():
    """All of them."""
    to_harness = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    start = os.path.join(GIVEN["home"], "project", "tried")
    for name, function in OPERATIONS.items():
        if name in GIVEN.get("without", ()):
            continue
        try:
            os.chdir(os.path.join(start, name))
            function()
            said = "did it"
        except Absent as error:
            said = f"absent: {error}"
        except Exception as error:  # Refused is as good as kept apart.
            said = f"{type(error).__name__}: {error}"
        to_harness.sendto(json.dumps([name, said]).encode(), ("127.0.0.1", GIVEN["port"]))
    os.chdir("/")
    if GIVEN.get("torch"):
        train()


def train():
    import torch

    model = torch.nn.Linear(256, 256).cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    losses = []
    for _ in range(6):
        optimizer.zero_grad()
        loss = model(torch.randn(64, 256, device="cuda")).sum()
        loss.backward()
        optimizer.step()
        losses.append(loss)  # A mistake for `plimsoll lint`.


if __name__ == "__main__":
    everything()
