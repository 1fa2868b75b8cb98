"""A run that a scheduler, `timeout` or a closed terminal ends says what it has seen, as after Ctrl-C, and leaves nothing behind."""

import os
import signal
import subprocess
import time

import pytest

TRAINS = """
import time, torch
net = torch.nn.Linear(512, 512).cuda()
opt = torch.optim.AdamW(net.parameters())
for step in range(100_000):
    net(torch.randn(64, 512, device="cuda")).sum().backward(); opt.step(); opt.zero_grad()
    if step == 3: open("started", "w").write(str(__import__("os").getpid()))
    time.sleep(0.02)
"""

LINES = {
    "alone": lambda process, number: process.send_signal(number),
    "with its group, as timeout does": lambda process, number: os.killpg(process.pid, number),
}


@pytest.mark.matrix(3)
@pytest.mark.parametrize("who", sorted(LINES))
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_what_was_seen_is_said(plimsoll, number, who):
    process = plimsoll.start("predict", "--until-exit", "--writes", "through", "--gpu", "rtx3090", "--", plimsoll.script(TRAINS), start_new_session=True)
    started, until = plimsoll.folder / "started", time.monotonic() + 120
    while not (started.exists() and started.read_text()):
        assert process.poll() is None and time.monotonic() < until
        time.sleep(0.05)
    script = int(started.read_text())
    LINES[who](process, number)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 2 and stdout == ""
    why = stderr.strip().split("\n")[-1]
    assert why.startswith("plimsoll: interrupted after" if number == signal.SIGINT else f"plimsoll: stopped by {number.name} after"), stderr
    assert "; until then it used " in why and why.endswith(" MiB of the GPU"), stderr
    assert subprocess.run(["ps", "-p", str(script)], capture_output=True).returncode != 0
    plimsoll.assert_nothing_left()
