"""How fast the viewer is on large recordings, in one Chromium, beside memory_viz where it is given.

    python bench/instruments/generate.py 3000000 big.pickle
    python bench/instruments/view.py big.pickle [--memory-viz MemoryViz.js --d3 d3.js]

For each file: from command to a drawn timeline, pans and zooms (the server's answer and the drawing, median and
95th percentile; the least of five rounds; frames during a drag), a hover, memory of server and page. `--memory-viz` is PyTorch's own torch/utils/viz/MemoryViz.js
and `--d3` the dist/d3.js of npm's d3@7 (d3@5 before 2026), which it imports: its `trace_plot` page loads both from the network, here they come
from disk. A process_alloc_data.js beside MemoryViz.js is served, too.
Prints one JSON object a file. Needs Chromium and playwright (tests/requirements.txt).
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from sets import ROOT

sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "view")]

from viewer import ARGUMENTS, Viewer, chromium, settled  # noqa: E402

MOVES = """async ({ count, seed }) => {
    // Windows of all sizes, anywhere: what wheels and drags ask for.
    const { page, set } = window.plimsoll;
    const { view } = page;
    const end = page.scenes[0].events + 1;
    let state = seed;
    const random = () => (state = (state * 16807) % 2147483647) / 2147483647;
    view.timings.paint.length = view.timings.answer.length = 0;
    for (let i = 0; i < count; i++) {
        const span = Math.max(50, Math.floor(end ** (0.4 + 0.6 * random())));
        const from = Math.floor(random() * (end - span));
        set({ from, to: from + span });
        await new Promise((done) => { const wait = () => (view.isAsking || view.isDue ? requestAnimationFrame(wait) : done()); requestAnimationFrame(wait); });
    }
    return view.timings;
}"""

# The same windows several times: the longest painting of each, and of the rounds the least, which is what a quiet machine needs.
FRAMES = """async ({ count, rounds }) => {
    const { page, set } = window.plimsoll;
    const { view } = page;
    const end = page.scenes[0].events + 1;
    const top = page.scenes[0].peak_reserved;
    const settled = () => new Promise((done) => { const wait = () => (view.isAsking || view.isDue ? requestAnimationFrame(wait) : done()); requestAnimationFrame(wait); });
    const least = [];
    for (let round = 0; round < rounds; round++) {
        let seed = 11;
        const random = () => (seed = (seed * 16807) % 2147483647) / 2147483647;
        for (let i = 0; i < count; i++) {
            const span = Math.max(50, Math.floor(end ** (0.4 + 0.6 * random())));
            const from = Math.floor(random() * (end - span));
            const low = i % 3 ? null : random() * top * 0.7;
            view.timings.paint.length = 0;
            set({ from, to: from + span, low, top: low === null ? null : low + top * 0.3, ...(i % 5 ? {} : { sel: `category:${1 + Math.floor(random() * 5)}` }) });
            await settled();
            least[i] = Math.min(least[i] ?? Infinity, Math.max(...view.timings.paint));
        }
    }
    set({ from: null, to: null, low: null, top: null, sel: "" });
    await settled();
    return least;
}"""

# From frame to frame while something moves.
RECORD = """() => {
    const times = (window.frameTimes = []);
    let before = null;
    const frame = (now) => {
        if (before !== null) times.push(now - before);
        before = now;
        if (window.frameTimes === times) requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
}"""


def drag(page):
    """A hand that drags a fifth of the recording across the picture, in 150 moves."""
    page.evaluate("() => { const { page, set } = window.plimsoll; const end = page.scenes[0].events; set({ from: Math.floor(end * 0.4), to: Math.floor(end * 0.6) }); }")
    settled(page)
    page.wait_for_timeout(1500)
    box = page.locator(".plot").first.bounding_box()
    y = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] * 0.9, y)
    page.mouse.down()
    page.evaluate(RECORD)
    page.mouse.move(box["x"] + box["width"] * 0.1, y, steps=150)
    times = page.evaluate("() => { const times = window.frameTimes; window.frameTimes = null; return times; }")
    page.mouse.up()
    return {**told(times), "frames": len(times)}


FIRST = """async (path) => {
    const start = performance.now();
    await (await fetch(`api/${path}`)).text();
    return Math.round(performance.now() - start);
}"""

# A turn of the wheel until it is drawn, in either page; two frames, 33 ms, are the least that can be seen so.
WHEEL = """async ([name, count]) => {
    const node = document.querySelector(name);
    const frame = () => new Promise((done) => requestAnimationFrame(done));
    const busy = () => { const view = window.plimsoll?.page.view; return view && (view.isAsking || view.isDue || !view.suits(view.data, view.wanted())); };
    const box = (node.ownerSVGElement || node).getBoundingClientRect();
    const times = [];
    for (let i = 0; i < count; i++) {
        const start = performance.now();
        node.dispatchEvent(new WheelEvent("wheel", { deltaY: i % 4 < 3 ? -120 : 240, clientX: box.x + box.width * 0.6, clientY: box.y + box.height * 0.5, bubbles: true, cancelable: true }));
        do await frame(); while (busy());
        await frame();
        times.push(performance.now() - start);
    }
    return times;
}"""

HOVER = """() => {
    const { view } = window.plimsoll.page;
    const start = performance.now();
    let found = 0;
    for (let i = 0; i < 10000; i++) found += view.picture.at((i * 97) % view.picture.width, (i * 31) % view.picture.height) ? 1 : 0;
    return (performance.now() - start) / 10000;
}"""


def quantile(values, share):
    ordered = sorted(values)
    return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 2) if ordered else None


def told(values):
    return {"median": quantile(values, 0.5), "p95": quantile(values, 0.95)}


def status(pid, key):
    text = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(rf"{key}:\s+(\d+) kB", text)[1]) // 1024


class PageClock:
    """CPU time of the page's main thread: on a busy machine, wall-clock times are the neighbours'."""

    def __init__(self, page):
        self.session = page.context.new_cdp_session(page)
        self.session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def seconds(self, of="ScriptDuration"):
        return {it["name"]: it["value"] for it in self.session.send("Performance.getMetrics")["metrics"]}[of]


def cpu_seconds(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def browser_use():
    """CPU seconds of the browser and all its processes, and the memory of the largest in MiB."""
    parents, names = {}, {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, rest = stat.read_text().rsplit(")", 1)
        except OSError:
            continue
        pid = int(stat.parent.name)
        parents[pid], names[pid] = int(rest.split()[1]), name.split("(", 1)[1]

    def is_ours(pid):
        while pid in parents and pid != os.getpid():
            pid = parents[pid]
        return pid == os.getpid()

    ours = [it for it in parents if "chrom" in names[it] and is_ours(it)]
    return sum(cpu_seconds(it) for it in ours), max((status(it, "VmHWM") for it in ours), default=0)


def wait_until_idle(pid):
    """What the server makes beforehand is no part of an answer."""
    before = None
    while before != cpu_seconds(pid):
        before = cpu_seconds(pid)
        time.sleep(1)


def heap_mib(page):
    """Of the page alone, after a collection."""
    session = page.context.new_cdp_session(page)
    session.send("HeapProfiler.collectGarbage")
    return round(session.send("Runtime.getHeapUsage")["usedSize"] / 2**20, 1)


def ours(browser, path):
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    start = time.monotonic()
    idle, _ = browser_use()
    viewer = Viewer(path)
    ready = time.monotonic() - start
    cpu = cpu_seconds(viewer.process.pid)
    clock = PageClock(page)
    page.goto(viewer.url + "#view=timeline")
    settled(page)
    painted = time.monotonic() - start
    page.evaluate("() => window.plimsoll.set({ view: 'answer' })")
    settled(page)
    answered = time.monotonic() - start
    page.evaluate("() => window.plimsoll.set({ view: 'timeline' })")
    settled(page)
    browser_cpu, largest = browser_use()
    wait_until_idle(viewer.process.pid)
    prepared = time.monotonic() - start
    first = {it: page.evaluate(FIRST, it) for it in ("analysis", "what-if?r=0&columns=900&conf=expandable_segments:True", "what-if?r=0&columns=900&capacity=24GiB")}
    before, drawn = cpu_seconds(viewer.process.pid), clock.seconds()
    timings = page.evaluate(MOVES, {"count": 80, "seed": 7})
    answers, drawing = cpu_seconds(viewer.process.pid) - before, clock.seconds() - drawn
    result = {
        "seconds_to_address": round(ready, 2),
        "seconds_to_first_paint": round(painted, 2),
        "seconds_to_the_answer": round(answered, 2),
        "cpu_seconds_to_address": round(cpu, 2),
        "browser_cpu_seconds_to_first_paint": round(browser_cpu - idle, 2),
        "seconds_until_all_is_prepared": round(prepared, 1),
        "first_answer_ms": first,
        "largest_browser_process_mib": largest,
        "answer_ms": {"median": quantile(timings["answer"], 0.5), "p95": quantile(timings["answer"], 0.95)},
        "server_cpu_ms_per_answer": round(1000 * answers / max(1, len(timings["answer"])), 1),
        "paint_ms": {"median": quantile(timings["paint"], 0.5), "p95": quantile(timings["paint"], 0.95)},
        "page_cpu_ms_per_paint": round(1000 * drawing / max(1, len(timings["paint"])), 1),
        "wheel_ms": told(page.evaluate(WHEEL, [".plot", 40])),
        "frame_ms_least_of_rounds": told(page.evaluate(FRAMES, {"count": 60, "rounds": 5})),
        "drag_frame_ms": drag(page),
        "hover_lookup_ms": page.evaluate(HOVER),
        "page_heap_mib": heap_mib(page),
        "server_mib": status(viewer.process.pid, "VmRSS"),
        "server_peak_mib": status(viewer.process.pid, "VmHWM"),
    }
    page.close()
    viewer.end()
    return result


def as_module(d3):
    """npm's d3.js as the module that its CDN makes of it."""
    text = d3.read_text()
    names = sorted(set(re.findall(r"\bexports\.(\w+) = ", text)))
    # The UMD wrapper takes `exports` where there is a `module`. No name of theirs hides one of the browser's (`window`).
    own = "".join(f"const own_{it} = d3.{it};\n" for it in names)
    given = ", ".join(f"own_{it} as {it}" for it in names)
    return f"const d3 = (() => {{ const exports = {{}}; const module = {{}};\n{text}\nreturn exports; }})();\n{own}export {{ {given} }};\n"


def is_drawn(page):
    """Waits a little; a page that is busy does not answer at all."""
    from playwright.sync_api import TimeoutError

    try:
        page.wait_for_selector("svg polygon", timeout=2000, state="attached")
    except TimeoutError:
        return False
    return True


def memory_viz(browser, path, script, d3, limit):
    """Its own page, until its plot has polygons."""
    import torch.cuda._memory_viz as theirs

    with tempfile.TemporaryDirectory() as folder:
        html = Path(folder) / "plot.html"
        start = time.monotonic()
        made = subprocess.run([sys.executable, theirs.__file__, "trace_plot", str(path), "-o", str(html)], capture_output=True, text=True)
        if made.returncode:
            return {"failed": made.stderr.strip().splitlines()[-1:]}
        written = time.monotonic() - start
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        problems = []
        page.on("pageerror", lambda it: problems.append(str(it)[:200]))
        page.on("crash", lambda it: problems.append("the tab crashed"))
        headers = {"Access-Control-Allow-Origin": "*", "Content-Type": "text/javascript"}
        before, _ = browser_use()
        page.route(re.compile("MemoryViz.js"), lambda it: it.fulfill(path=script, headers=headers))
        beside = script.parent / "process_alloc_data.js"
        if beside.exists():
            page.route(re.compile("process_alloc_data.js"), lambda it: it.fulfill(path=beside, headers=headers))
        page.route(re.compile("/d3[@-]"), lambda it: it.fulfill(body=as_module(d3), headers=headers))
        try:
            page.goto(html.as_uri(), timeout=limit * 1000, wait_until="commit")
            while not is_drawn(page):
                if problems or start + written + limit < time.monotonic():
                    raise RuntimeError(f"nothing is drawn after {limit} s")
            result = {"seconds_to_first_paint": round(time.monotonic() - start, 1)}
        except Exception as error:  # noqa: BLE001
            result = {"failed": problems or [str(error).splitlines()[0]], "after_seconds": round(time.monotonic() - start, 1)}
        cpu, largest = browser_use()
        result.update(seconds_to_write=round(written, 1), browser_cpu_seconds=round(cpu - before, 1), largest_process_mib=largest)
        if "failed" not in result:
            result["page_heap_mib"] = heap_mib(page)
            result["wheel_ms"] = told(page.evaluate(WHEEL, ["svg polygon", 40]))
        page.close()
        return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--memory-viz", type=Path)
    parser.add_argument("--d3", type=Path)
    parser.add_argument("--limit", type=int, default=180, help="seconds that memory_viz may take")
    args = parser.parse_args()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        for path in args.files:
            browser = playwright.chromium.launch(executable_path=chromium(), headless=True, args=ARGUMENTS)
            result = {"file": path.name, "mib": path.stat().st_size >> 20, "plimsoll": ours(browser, path)}
            browser.close()
            if args.memory_viz:
                browser = playwright.chromium.launch(executable_path=chromium(), headless=True, args=ARGUMENTS)
                result["memory_viz"] = memory_viz(browser, path, args.memory_viz, args.d3, args.limit)
                browser.close()
            print(json.dumps(result), flush=True)


main()
