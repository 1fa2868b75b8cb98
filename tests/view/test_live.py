"""`view --live` beside a run: what it does shows within a second, and costs it nothing."""

import re

import pytest
from viewer import Viewer

LOOP = """
import time, torch
model = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512)).cuda()
optimizer = torch.optim.Adam(model.parameters())
kept = []
for step in range(400):
    optimizer.zero_grad()
    model(torch.ones(4096, 512, device="cuda")).sum().backward()
    optimizer.step()
    kept.append(torch.empty(1 << 18, device="cuda"))
    time.sleep(0.05)
"""


@pytest.mark.soak
def test_it_follows_a_run_from_its_first_step_to_its_end(page, plimsoll):
    viewer = Viewer(options=("--live",), environment=plimsoll.environment())
    try:
        page.goto(viewer.url)
        page.wait_for_function("() => document.querySelector('.live')?.textContent.includes('No run is in progress')")
        plimsoll.script(LOOP)
        run = plimsoll.start("predict", "--steps", "400", "--", "train.py")
        try:
            page.wait_for_function("() => /Step \\d+/.test(document.querySelector('.live .lead').textContent)", timeout=60_000)
            step = "() => Number(/Step ([\\d,]+)/.exec(document.querySelector('.live .lead').textContent)[1].replace(',', ''))"
            before = page.evaluate(step)
            page.wait_for_function(f"(before) => ({step})() > before", arg=before)
            page.wait_for_function("() => document.querySelectorAll('.live .legend li').length > 3")
            said = page.inner_text(".live")
            assert re.search(r"parameters 2\.0 MiB", said), said
            assert "optimizer state" in said
            assert "train.py" in said
            page.select_option("select[aria-label=Card]", "h100-80g")
            page.wait_for_function("() => /below the limit of h100-80g/.test(document.querySelector('.live').textContent)")
            assert page.locator(".live .chart .curve").count() == 2
        finally:
            run.send_signal(2)
            run.communicate(timeout=60)
        page.wait_for_function("() => /The run has ended/.test(document.querySelector('.live').textContent)")
        page.goto("about:blank")
    finally:
        assert viewer.end() == 0
