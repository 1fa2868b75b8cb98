"""Three million events, as torch would write them, in a real Chromium. Times are for bench/instruments/view.py."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from harness import ROOT
from viewer import settled, viewing

EVENTS = 3_000_000
pytestmark = pytest.mark.soak


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    path = tmp_path_factory.mktemp("large") / "large.pickle"
    subprocess.run([sys.executable, ROOT / "bench" / "instruments" / "generate.py", str(EVENTS), path], check=True)
    yield path
    path.unlink()


def test_three_million_events_are_looked_at(page, large):
    with viewing(large) as viewer:
        page.goto(f"{viewer.url}#view=timeline")
        settled(page)
        scene = page.evaluate("() => window.plimsoll.page.scenes[0]")
        assert EVENTS <= scene["events"]
        whole = page.evaluate("() => { const { lives, k, summed, between } = window.plimsoll.page.view.data; return { lives, k, summed, between }; }")
        assert whole["lives"] == scene["lives"]
        assert whole["k"] + whole["summed"] + whole["between"] == whole["lives"]

        # From everything to a single block in the middle of it, and beside it.
        life = scene["lives"] // 2
        facts = page.evaluate("async (life) => (await fetch(`api/block?r=0&life=${life}`)).json()", life)
        for span in (300_000, 10_000, 40):
            page.evaluate("([from, to]) => window.plimsoll.set({ from, to })", [facts["start"] - span / 2, facts["start"] + span / 2])
            settled(page)
        alone = page.evaluate("(life) => { const { data } = window.plimsoll.page.view; return [...data.lives_of].includes(life) || data.least; }", life)
        assert alone is True or facts["size"] < alone
        for _ in range(5):
            page.keyboard.press("ArrowRight")
            settled(page)
        assert page.evaluate("() => window.plimsoll.page.view.data.lives") < 10_000

        for view, words in [("peak", "allocated in"), ("segments", "reserved in"), ("answer", "The peak:"), ("growth", "Step by step"), ("whatif", "The recorded requests fit"), ("ranks", "One recording")]:
            page.evaluate("(view) => window.plimsoll.set({ view })", view)
            page.wait_for_function("(words) => document.querySelector('main').textContent.includes(words)", arg=words, timeout=240_000)
        page.evaluate("() => window.plimsoll.set({ view: 'timeline', from: null, to: null })")
        settled(page)

        # The curves of free memory come after the picture. A server that ends before them leaves the page without an answer,
        # which the browser notes as an error.
        page.wait_for_function("() => { const { view } = window.plimsoll.page; return view.freeOf === view.data; }", timeout=120_000)

        session = page.context.new_cdp_session(page)
        session.send("HeapProfiler.collectGarbage")
        assert session.send("Runtime.getHeapUsage")["usedSize"] < 200 << 20
        status = Path(f"/proc/{viewer.process.pid}/status").read_text()
        assert int(re.search(r"VmHWM:\s+(\d+)", status)[1]) << 10 < 1.5 * large.stat().st_size
        page.goto("about:blank")
