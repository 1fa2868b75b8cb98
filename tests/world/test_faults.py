"""What goes wrong around a run: the kernel kills for memory, clocks jump. It is said, and nothing is left or changed."""

import contextlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from harness import COLD, binary

EATS = """
import os
open("kept.txt", "w").write("changed")
held = []
while True:
    held.append(os.urandom(1 << 20))
"""

TRAINS = """
import torch
layer = torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(layer.parameters(), 0.1)
for _ in range(6):
    optimizer.zero_grad()
    layer(torch.randn(8, 64, device="cuda")).sum().backward()
    optimizer.step()
open("kept.txt", "w").write("changed")
"""

JUMPS = """
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t which, struct timespec *at) {
  static int n;
  int res = syscall(SYS_clock_gettime, which, at);
  if (which == CLOCK_REALTIME) at->tv_sec += (n++ % 3 - 1) * 400000000L; /* Twelve years ago, now, in twelve years. */
  return res;
}
"""


@contextlib.contextmanager
def limited(most):
    """A control group whose processes have so many bytes of memory; None where we may not make one."""
    first, second = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
    name = f"plimsoll-tests-{os.getpid()}"
    for folder, files in ((first / name, ("memory.limit_in_bytes",)), (second / name, ("memory.max", "memory.swap.max"))):
        try:
            folder.mkdir()
        except OSError:
            continue
        try:
            if not (folder / files[0]).exists():
                continue
            for file, text in zip(files, (str(most), "0")):
                with contextlib.suppress(OSError):
                    (folder / file).write_text(text)
            yield folder
            return
        finally:
            folder.rmdir()
    yield None


@pytest.mark.parametrize("way", ["mounts", pytest.param("user", marks=pytest.mark.soak), pytest.param("traced", marks=pytest.mark.soak)])
def test_the_kernel_kills_the_script_for_memory(plimsoll, way):
    kept = plimsoll.folder / "kept.txt"
    kept.write_text("mine")
    script = plimsoll.script(EATS)
    with limited(300 << 20) as group:
        if group is None:
            pytest.skip("we may not make a control group for memory")
        ran = subprocess.run(
            ["sh", "-c", f"echo $$ > {group}/cgroup.procs; exec \"$@\"", "sh", binary(), "predict", "--gpu", "t4", "--", COLD, str(script)],
            cwd=plimsoll.folder, env=plimsoll.environment(PLIMSOLL_WRITES_WAY=way), capture_output=True, text=True, timeout=100,
        )
    if "cannot separate the script's writes" in ran.stderr:
        pytest.skip(ran.stderr)
    assert ran.returncode == 2 and "the kernel killed the script" in ran.stderr and "ran out of memory" in ran.stderr, ran
    assert kept.read_text() == "mine"
    plimsoll.assert_nothing_left()


@pytest.mark.soak
@pytest.mark.skipif(not shutil.which("gcc"), reason="no compiler")
def test_clocks_jump(plimsoll):
    kept = plimsoll.folder / "kept.txt"
    kept.write_text("mine")
    script = plimsoll.script(TRAINS)
    library = plimsoll.folder / "clock.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, "-x", "c", "-"], input=JUMPS, text=True, check=True)
    environment = plimsoll.cold(LD_PRELOAD=str(library))
    recording = plimsoll.folder / "run.zip"
    for words in (["predict", "--gpu", "t4", "--record", recording, "--", script], ["explain", recording], ["fit", "--gpu", "t4", "--", script]):
        ran = plimsoll.run(*words, environment=environment)
        assert ran.code == 0 and "panicked" not in ran.stderr, ran
        plimsoll.assert_nothing_left()
    assert kept.read_text() == "mine"
