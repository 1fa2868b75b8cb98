"""What a stranger wants to know, from the address to the answer, in at most two clicks; and what leads to what."""

import json
import pickle
import re

import pytest
from viewer import FILES, SNAPSHOTS, settled, viewing, zipped


class Clicks:
    """A page just opened, and how often somebody clicked."""

    def __init__(self, page, url, r=0):
        self.page, self.count = page, 0
        page.goto("about:blank")
        page.goto(f"{url}#r={r}" if r else url)
        settled(page)

    def click(self, name):
        self.page.get_by_role("button", name=name).first.click()
        self.count += 1
        settled(self.page)
        assert self.count <= 2


def leaking(path, fails=False):
    """Six steps; each leaves 8 MiB of what its forward pass made. In the last backward pass autograd's thread may ask for too much."""
    base, mib = 0x7F0000000000, 1 << 20
    frames = lambda line, name="main": [{"filename": "/home/me/train.py", "line": line, "name": name}]  # noqa: E731
    module = [{"filename": "/usr/lib/python3/dist-packages/torch/nn/modules/module.py", "line": 1776, "name": "_call_impl"}]
    optimizer = [{"filename": "/usr/lib/python3/dist-packages/torch/optim/sgd.py", "line": 70, "name": "step"}]
    backward = [{"filename": "/usr/lib/python3/dist-packages/torch/autograd/__init__.py", "line": 354, "name": "backward"}]
    events, clock = [], iter(range(1, 10**6))

    def put(action, address, size, stack):
        events.append({"action": action, "addr": address, "size": size, "stream": 0, "time_us": next(clock) * 100, "frames": stack})

    put("segment_alloc", base, 400 * mib, frames(5))
    at = base
    for _ in range(3):
        put("alloc", at, 8 * mib, frames(8, "build"))
        at += 8 * mib
    held = []
    for step in range(6):
        made = []
        for layer in range(5):
            put("alloc", at, 8 * mib, module + frames(20 + layer, "forward") + module + frames(30))
            made.append(at)
            at += 8 * mib
        put("alloc", at, mib, backward + frames(31))
        if fails and step == 5:
            put("oom", 2 * mib, 64 * mib, [])
        for address in made[1:]:
            for action in ("free_requested", "free_completed"):
                put(action, address, 8 * mib, [])
        for action in ("free_requested", "free_completed"):
            put(action, at, mib, [])
        put("alloc", at, mib, optimizer + frames(32))
        for action in ("free_requested", "free_completed"):
            put(action, at, mib, optimizer + frames(32))
        held.append(made[0])
        at = made[1]
    blocks, cursor = [], base
    live = [*(base + i * 8 * mib for i in range(3)), *held]
    for address in sorted(live):
        if cursor < address:
            blocks.append({"address": cursor, "size": address - cursor, "requested_size": 0, "state": "inactive", "frames": []})
        blocks.append({"address": address, "size": 8 * mib, "requested_size": 8 * mib, "state": "active_allocated", "frames": frames(8)})
        cursor = address + 8 * mib
    blocks.append({"address": cursor, "size": base + 400 * mib - cursor, "requested_size": 0, "state": "inactive", "frames": []})
    segment = {"device": 0, "address": base, "total_size": 400 * mib, "stream": 0, "segment_type": "large", "segment_pool_id": (0, 0), "is_expandable": False, "frames": [], "blocks": blocks}
    path.write_bytes(pickle.dumps({"segments": [segment], "device_traces": [events], "allocator_settings": {}, "external_annotations": []}))
    return path


@pytest.fixture(scope="module")
def leak(tmp_path_factory):
    with viewing(leaking(tmp_path_factory.mktemp("leak") / "leak.pickle")) as viewer:
        yield viewer


def test_it_opens_on_the_sentence_of_explain(page, viewer, plimsoll):
    for r, name in enumerate(FILES):
        report = plimsoll.run("explain", SNAPSHOTS / f"{name}.pickle").stdout
        Clicks(page, viewer.url, r)
        said = page.inner_text(".headline h2")
        word = re.split(r"[:\n]", said)[0].strip()
        assert report.startswith(word), (report[:100], said)
        cause = json.loads(plimsoll.run("explain", SNAPSHOTS / f"{name}.pickle", "--json", "-").stdout)["cause"]
        if cause:
            assert cause["text"].lower().rstrip(".") in said.lower()


def test_a_request_that_failed_in_the_backward_pass_has_the_line_that_called_it(page, tmp_path):
    with viewing(leaking(tmp_path / "fails.pickle", fails=True)) as viewer:
        page.goto(f"{viewer.url}#view=growth")
        settled(page)
        page.wait_for_selector("text=Requests that failed")
        assert "backward of train.py:31 in main" in page.inner_text("main")
        page.get_by_role("button", name="holes").first.click()
        page.wait_for_function("() => document.querySelector('tr.chosen')?.textContent.includes('backward of train.py:31 in main')")
        page.goto("about:blank")


@pytest.mark.soak
def test_a_second_recording_that_is_cut_says_so(page, tmp_path):
    whole = leaking(tmp_path / "whole.pickle")
    cut = tmp_path / "cut.pickle"
    cut.write_bytes(whole.read_bytes()[: whole.stat().st_size * 3 // 5])
    with viewing(whole, cut) as viewer:
        page.goto(f"{viewer.url}#view=timeline&with=1")
        settled(page)
        page.wait_for_selector(".damage")
        assert page.inner_text(".damage").startswith("Incomplete: cut.pickle. This file is cut off or damaged")
        page.get_by_label("Show another recording with this one").select_option("")
        page.wait_for_selector(".damage", state="detached")
        page.goto("about:blank")
        page.goto(f"{viewer.url}#view=ranks")
        settled(page)
        page.wait_for_selector(".ranks .lead")
        assert page.inner_text(".ranks .damage").startswith("Incomplete: cut.pickle. This file is cut off or damaged")
        page.goto("about:blank")


def test_a_share_is_the_same_in_the_answer_and_at_the_peak(page, viewer):
    shares = {}
    for view, table in [("answer", ".answer .numbers"), ("peak", ".shares .numbers")]:
        page.goto("about:blank")
        page.goto(f"{viewer.url}#r=1&view={view}")
        settled(page)
        page.wait_for_selector(table)
        shares[view] = re.findall(r"(?m)^(.+)\t(.+)\t(.+ %)\t", page.inner_text(table))
    assert 3 < len(shares["answer"])
    assert shares["answer"] == shares["peak"]


def test_who_holds_the_peak(page, viewer):
    stranger = Clicks(page, viewer.url, 2)
    line = page.locator(".answer .code button").first
    name = line.inner_text()
    line.click()
    stranger.count += 1
    page.wait_for_selector("#found .sum")
    assert page.inner_text("#found .by").startswith(name[:20])
    live, told = page.evaluate("() => [document.querySelector('#found .sum b').title, window.plimsoll.state.sel]")
    assert told.startswith("owner:")
    moment = page.evaluate("async () => (await fetch('api/moment?r=2&position=peak')).json()")
    assert int(re.sub(r"\D", "", live)) == moment["rows"][0]["bytes"]


def test_which_leak(page, leak):
    stranger = Clicks(page, leak.url)
    assert "LEAK" in page.inner_text(".headline h2") or "GROWS" in page.inner_text(".headline h2")
    stranger.click(re.compile("Show th(ese|is)"))
    page.wait_for_selector("#found .sum")
    found = page.evaluate("async () => (await fetch('api/analysis')).json()")
    index = next(i for i, it in enumerate(found["explanations"][0]["findings"]) if it["weight"] == "problem")
    n = found["blocks"][0][index][0]
    assert f"{n:,} block" in page.inner_text("#found h2")
    # Exactly these keep their colours, in the timeline and in the map.
    lit = "() => { const { view } = window.plimsoll.page; return [...new Set([...view.data.lives_of])].length; }"
    assert n < page.evaluate(lit)
    stranger.click("Show their addresses")
    assert page.inner_text("#found h2").startswith(f"{n:,} block")


def test_why_it_is_fragmented(page, viewer):
    stranger = Clicks(page, viewer.url, 1)
    stranger.click(re.compile("Fragmentation"))
    said = page.inner_text("main")
    assert "free in" in said and "hole" in said and "the largest" in said


def test_the_first_step_against_a_later_one(page, viewer):
    stranger = Clicks(page, viewer.url, len(FILES))
    stranger.click(re.compile("Compare the first step with the last"))
    page.wait_for_selector(".difference h2")
    steps = page.evaluate(f"async () => (await fetch('api/marks?r={len(FILES)}')).json()")["steps"]
    ended = [it["step"] for it in steps if it["after"] is not None]
    assert page.inner_text(".difference h2").startswith(f"From after step {ended[0]} to after step {ended[-1]}: ")


def test_what_would_change_it(page, viewer):
    stranger = Clicks(page, viewer.url, 1)
    stranger.click(re.compile("What if: another card"))
    assert "The requests up to the failed one are served" in page.inner_text(".result")


def test_a_sum_is_of_what_lived_at_once(page, viewer):
    open_url = f"{viewer.url}#view=timeline&r=2&sel=words:%3E1B"
    page.goto("about:blank")
    page.goto(open_url)
    page.wait_for_selector("#found .sum")
    scene = page.evaluate("() => window.plimsoll.page.scenes[2]")
    assert int(re.sub(r"\D", "", page.locator("#found .sum b").get_attribute("title"))) == scene["peak_allocated"]


def test_a_cell_of_the_flame_graph_is_its_blocks_in_every_view(page, viewer):
    page.goto("about:blank")
    page.goto(f"{viewer.url}#view=peak&r=0")
    settled(page)
    cell = page.locator(".flame .cell:not(.none)").nth(1)
    bytes = re.search(r": ([\d.]+ \w+),", cell.get_attribute("aria-label"))[1]
    cell.click()
    page.wait_for_selector("#found .sum")
    assert page.locator("#found .sum b").inner_text() == bytes
    page.evaluate("() => window.plimsoll.set({ view: 'segments' })")
    page.wait_for_function("() => document.querySelector('.segments .map')")
    assert page.locator("#found .sum").is_visible()


def test_search_finds_modules_and_purposes(page, viewer):
    r = len(FILES)
    page.goto("about:blank")
    page.goto(f"{viewer.url}#view=timeline&r={r}")
    settled(page)
    modules = page.evaluate(f"async () => (await fetch('api/moment?r={r}&position=peak')).json()")["modules"]
    for words in ("parameters", modules[-1][1]):
        page.fill("#words", words)
        page.keyboard.press("Enter")
        page.wait_for_function("(words) => window.plimsoll.state.sel === `words:${words}` && document.querySelector('#found .sum')", arg=words)
        assert re.match(r"[\d,]+ block", page.inner_text("#found h2"))
    page.keyboard.press("Escape")
    assert state_of(page)["sel"] == "" or page.keyboard.press("Escape") is None
    page.evaluate("() => window.plimsoll.set({ sel: 'words:parameters' })")
    page.wait_for_selector("#found .sum")
    page.evaluate("() => document.activeElement.blur()")
    page.keyboard.press("n")
    first = state_of(page)["pin"]
    page.keyboard.press("n")
    assert state_of(page)["pin"] not in (None, first)
    page.keyboard.press("N")
    assert state_of(page)["pin"] == first


def state_of(page):
    return page.evaluate("() => ({ ...window.plimsoll.state })")


def test_the_way_back_is_the_way_back(page, viewer):
    page.goto("about:blank")
    page.goto(f"{viewer.url}#view=answer&r=0")
    settled(page)
    page.keyboard.press("2")
    settled(page)
    page.keyboard.press("+")
    page.wait_for_timeout(250)
    zoomed = state_of(page)["from"]
    page.keyboard.press("3")
    settled(page)
    page.go_back()
    settled(page)
    assert (state_of(page)["view"], round(state_of(page)["from"])) == ("timeline", round(zoomed))
    page.go_back()
    settled(page)
    assert state_of(page)["view"] == "answer"
    page.go_forward()
    settled(page)
    assert state_of(page)["view"] == "timeline"


def test_a_link_works_tomorrow(page, plimsoll):
    options = ("--port", "0", "--token", "a-secret-of-mine-1234")
    with viewing(SNAPSHOTS / "mempool.pickle", options=options) as viewer:
        assert viewer.url.endswith("/a-secret-of-mine-1234/")
        port = viewer.url.split(":")[2].split("/")[0]
        page.goto(f"{viewer.url}#view=peak&at=3")
        settled(page)
    with viewing(SNAPSHOTS / "mempool.pickle", options=("--port", port, "--token", "a-secret-of-mine-1234")):
        page.reload()
        settled(page)
        assert state_of(page)["at"] == 3
    refused = plimsoll.run("view", SNAPSHOTS / "mempool.pickle", "--token", "short")
    assert refused.code == 2
    assert "at least 16 letters" in refused.stderr


def test_the_focus_stays_and_the_keys_go_on(page, viewer):
    page.goto("about:blank")
    page.goto(f"{viewer.url}#view=peak&r={len(FILES)}")
    settled(page)
    step = page.get_by_role("button", name="◂ step")
    step.focus()
    page.keyboard.press("Enter")
    page.wait_for_timeout(300)
    settled(page)
    assert page.evaluate("() => document.activeElement.textContent") == "◂ step"
    page.locator(".flamebox label", has_text="by module").click()
    page.keyboard.press("2")
    settled(page)
    assert state_of(page)["view"] == "timeline"
    page.locator("#tab-timeline").focus()
    page.keyboard.press("ArrowRight")
    settled(page)
    assert state_of(page)["view"] == "peak"
    assert page.evaluate("() => document.activeElement.id") == "tab-peak"
    for key in "[]":
        at = state_of(page)["at"]
        page.keyboard.press(key)
        page.wait_for_function("(at) => window.plimsoll.state.at !== at", arg=at)


def test_a_server_that_is_gone_is_said_and_nothing_waits_for_ever(page):
    with viewing(SNAPSHOTS / "mempool.pickle") as viewer:
        page.goto(viewer.url)
        settled(page)
    page.keyboard.press("3")
    page.wait_for_function("() => document.querySelector('main').textContent.includes('the server does not answer')")
    assert page.locator(".wait").count() == 0
    assert page.get_by_role("button", name="Try again").is_visible()
    page.problems.clear()


def cut(path, whole, plimsoll):
    path.write_bytes(whole[: len(whole) // 2])


def flipped(path, whole, plimsoll):
    """Not every byte is missed: one of those that are."""
    for at in range(len(whole) // 3, len(whole) // 3 + 200):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        if plimsoll.run("explain", path).code == 2:
            return


@pytest.mark.soak
@pytest.mark.parametrize("break_it", [cut, flipped])
def test_a_damaged_file_is_said_on_every_view_and_nothing_is_guessed(page, plimsoll, tmp_path, break_it):
    path = tmp_path / "damaged.pickle"
    break_it(path, (SNAPSHOTS / "lstm-adam-b32-s128.pickle").read_bytes(), plimsoll)
    assert plimsoll.run("explain", path).code == 2
    out = tmp_path / "page.html"
    ran = plimsoll.run("view", path, "--html", out)
    assert ran.code == 2
    assert "cut off or damaged" in ran.stderr
    with viewing(path) as viewer:
        for start in (viewer.url, out.as_uri()):
            for view in ("answer", "timeline", "peak", "segments", "growth", "whatif", "ranks"):
                page.goto("about:blank")
                page.goto(f"{start}#view={view}")
                settled(page)
                said = page.inner_text("main")
                assert "Incomplete recording" in said, view
                assert "cut off or damaged" in said, view
                for guess in ("ring was full", "was overwritten", "has a final state and no history", "_record_memory_history()"):
                    assert guess not in said, (view, guess)
    assert "cut off or damaged" in viewer.process.stderr.read()


def test_lines_of_two_recordings_are_the_same_where_their_paths_differ(page, tmp_path):
    path = SNAPSHOTS / "lstm-adam-b32-s128.pickle"
    elsewhere = tmp_path / "elsewhere.pickle"

    def moved(it):
        if isinstance(it, dict):
            return {key: value.replace("/home/user/", "/root/jobs/17/") if key == "filename" else moved(value) for key, value in it.items()}
        return [moved(value) for value in it] if isinstance(it, list) else it

    elsewhere.write_bytes(pickle.dumps(moved(pickle.loads(path.read_bytes()))))
    with viewing(path, elsewhere) as viewer:
        page.goto(f"{viewer.url}#view=ranks")
        settled(page)
        page.wait_for_selector(".ranks .lead")
        assert "No differences" in page.inner_text("main")


def test_numbers_are_rounded_as_in_the_terminal(page, viewer, plimsoll):
    page.goto(viewer.url)
    settled(page)
    written = page.evaluate("async () => { const { size } = await import('./words.js'); return [1310720, 1024 * 1.25, 1.35 * 2 ** 20, 2 ** 30 * 1.005, 2 ** 30 * 1.015625, 5, 1572864 + 52428].map((it) => size(Math.round(it))); }")
    assert written == ["1.2 MiB", "1.2 KiB", "1.4 MiB", "1.00 GiB", "1.02 GiB", "5 B", "1.5 MiB"]


def test_lines_are_those_of_explain_in_every_view(page, plimsoll, tmp_path):
    path = zipped("train", tmp_path)
    report = json.loads(plimsoll.run("explain", path, "--json", "-").stdout)
    facts = next(it for it in report["findings"] if it["code"] == "peak/composition")["evidence"]["facts"]
    told = [re.match(r"\s*([\d.]+ \w+) by (.*)", it).groups() for it in facts if " by " in it]
    assert told
    with viewing(path) as viewer:
        page.goto(viewer.url)
        settled(page)
        sums = page.evaluate(
            """async () => {
                const { rows } = await (await fetch("api/moment?r=0&position=peak")).json();
                const { size } = await import("./words.js");
                const sums = {};
                for (const { line, bytes } of rows) {
                    const name = line && line[0] ? `${line[4] ? "backward of " : ""}${line[0].split("/").pop()}:${line[1]}` : line ? line[2] : "none";
                    sums[name] = (sums[name] || 0) + bytes;
                }
                return Object.fromEntries(Object.entries(sums).map(([name, bytes]) => [name, size(bytes)]));
            }"""
        )
        for bytes, name in told:
            assert sums.get(name) == bytes, (name, bytes, sums)
        for view in ("answer", "peak", "timeline&by=line"):
            page.goto("about:blank")
            page.goto(f"{viewer.url}#view={view}")
            settled(page)
            assert "plimsoll_agent" not in page.inner_text("main")
            assert "agent.py" not in page.inner_text("main")


def test_a_recording_that_ran_out_names_its_levels_and_each_phase_once(page, tmp_path):
    with viewing(zipped("oom", tmp_path)) as viewer:
        page.goto(f"{viewer.url}#view=growth")
        settled(page)
        page.wait_for_selector("text=its phases:")
        phases = page.locator(".growth table.list").first.locator("tbody tr td:first-child").all_inner_texts()
        assert phases and len(phases) == len(set(phases)), phases
        page.goto(f"{viewer.url}#view=timeline")
        settled(page)
        scene, levels = page.evaluate("() => { const { view } = window.plimsoll.page; return [view.scene, view.levels()]; }")
        # No limit was set: it is what PyTorch reserved at most.
        assert {"bytes": scene["peak_reserved"], "name": "most reserved before it ran out"}.items() <= levels[0].items(), levels
        page.goto("about:blank")
