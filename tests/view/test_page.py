"""The page in a real Chromium, on recordings of real runs."""

import copy
import json
import pickle
import re

import pytest
from viewer import SNAPSHOTS, settled, viewing, zipped
from conftest import FILES

VIEWS = ["timeline", "peak", "segments", "growth", "whatif", "ranks"]
N_SCENES = len(FILES) + 2


def open_at(page, viewer, words=""):
    page.goto("about:blank")
    page.goto(f"{viewer.url}#{words}")
    settled(page)


def state(page):
    return page.evaluate("() => ({ ...window.plimsoll.state })")


def scene(page):
    return page.evaluate("() => window.plimsoll.page.scenes[window.plimsoll.state.r]")


def colors(page, selector=".plot"):
    """How many colours a canvas shows."""
    return page.evaluate(
        """(selector) => {
            const canvas = document.querySelector(selector);
            const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
            return new Set(new Uint32Array(data.buffer)).size;
        }""",
        selector,
    )


@pytest.mark.parametrize("r", range(N_SCENES))
@pytest.mark.parametrize("view", VIEWS)
def test_every_view_of_every_recording(page, viewer, view, r):
    open_at(page, viewer, f"view={view}&r={r}")
    main = page.inner_text("main")
    assert "undefined" not in main
    assert "NaN" not in main
    assert page.locator(f"#tab-{view}").get_attribute("aria-selected") == "true"
    # Nothing is wider than the window.
    assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
    if view == "timeline" and scene(page)["lives"]:
        assert 2 < colors(page)


def test_it_says_the_peak_as_explain_does(page, viewer, plimsoll):
    for r, name in enumerate(FILES):
        report = json.loads(plimsoll.run("explain", SNAPSHOTS / f"{name}.pickle", "--json", "-").stdout)
        open_at(page, viewer, f"view=peak&r={r}")
        bytes = page.locator(".facts b").first.get_attribute("title")
        assert int(re.sub(r"\D", "", bytes)) == report["peak_allocated_bytes"]


def test_keys_move_and_change_views(page, viewer):
    open_at(page, viewer, "view=timeline&r=2")
    page.keyboard.press("+")
    page.keyboard.press("ArrowRight")
    settled(page)
    moved = state(page)
    assert moved["from"] is not None
    assert 0 < moved["from"]
    page.keyboard.press("0")
    assert state(page)["from"] is None
    page.keyboard.press("p")
    page.wait_for_function("() => window.plimsoll.state.at !== null")
    assert state(page)["at"] == scene(page)["peak_position"]
    for index, view in enumerate(VIEWS):
        page.keyboard.press(str(index + 1))
        settled(page)
        assert state(page)["view"] == view
    page.keyboard.press("/")
    assert page.evaluate("() => document.activeElement.id") == "words"
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    assert page.locator("dialog[open]").is_visible()
    page.keyboard.press("Escape")
    assert page.locator("dialog[open]").count() == 0


def test_the_next_out_of_memory_error_is_one_key_away(page, viewer):
    open_at(page, viewer, "view=timeline&r=1")
    page.keyboard.press("o")
    page.wait_for_function("() => window.plimsoll.state.at !== null")
    assert state(page)["at"] == scene(page)["refusals"][0]["position"]


def test_hover_tells_what_is_there_and_a_click_pins_it(page, viewer):
    open_at(page, viewer, "view=timeline&r=2")
    box = page.locator(".plot").bounding_box()
    x, y = box["x"] + box["width"] * 0.6, box["y"] + box["height"] - 12
    page.mouse.move(x, y)
    page.wait_for_selector("#tip:not([hidden])")
    tip = page.inner_text("#tip")
    assert re.search(r"\d (GiB|MiB|KiB|B)\b", tip), tip
    assert "event" in tip
    page.mouse.click(x, y)
    page.wait_for_selector("#side:not([hidden])")
    block = state(page)["pin"]
    assert block is not None
    text = page.inner_text("#side")
    assert "bytes" in text
    assert "Stack" in text
    # The link is the view.
    page.wait_for_function("() => location.hash.includes('pin=')")
    link = page.url
    page.goto("about:blank")
    page.goto(link)
    settled(page)
    assert state(page)["pin"] == block
    page.keyboard.press("Escape")
    assert page.locator("#side").is_hidden()


def test_every_block_is_reached_by_zooming(page, viewer):
    """At the depth of its own life each block is drawn alone, however small."""
    open_at(page, viewer, "view=timeline&r=4")
    lives = scene(page)["lives"]
    for life in range(0, lives, max(1, lives // 12)):
        alone = page.evaluate(
            """async (life) => {
                const facts = await (await fetch(`api/block?r=4&life=${life}`)).json();
                const query = `r=4&axis=events&from=${facts.start}&to=${facts.start + 3}&columns=3&least=1&by=category`;
                const buffer = await (await fetch(`api/window?${query}`)).arrayBuffer();
                const [, n, k, groups] = new Uint32Array(buffer, 0, 4);
                const at = 32 + 8 * (4 * n + groups * n + k) + 4 * n;
                return new Uint32Array(buffer, at, k).includes(life);
            }""",
            life,
        )
        assert alone, life


def test_a_search_finds_and_goes_there(page, viewer):
    open_at(page, viewer, "view=timeline&r=4")
    page.fill("#words", ">1KiB")
    page.keyboard.press("Enter")
    page.wait_for_selector("#found .hits button")
    page.locator("#found .hits button").first.click()
    page.wait_for_selector("#side:not([hidden])")
    settled(page)
    assert state(page)["pin"] is not None
    page.fill("#words", "nobody wrote this")
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.querySelector('#found h2')?.textContent === 'Nothing'")


def test_two_moments_are_compared(page, viewer):
    open_at(page, viewer, "view=peak&r=0&at=10")
    page.get_by_role("button", name="Compare with this moment").click()
    settled(page)
    page.get_by_role("button", name="Peak", exact=True).click()
    page.wait_for_selector(".difference table")
    assert "From event 10" in page.inner_text(".difference h2")


def test_what_if_draws_over_what_was(page, viewer):
    open_at(page, viewer, "view=whatif&r=0")
    assert "It would have run" in page.inner_text(".result")
    page.select_option(".form select >> nth=0", "own")
    page.fill(".form input >> nth=0", "1MiB")
    page.keyboard.press("Enter")
    page.wait_for_selector(".result .bad")
    assert "run out of memory" in page.inner_text(".result")
    page.fill(".form input >> nth=0", "a lot")
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.querySelector('.result').textContent.includes('no size')")
    assert page.locator(".chart").count() == 0


def test_it_follows_the_window(page, viewer):
    open_at(page, viewer, "view=timeline&r=2")
    widths = []
    for width, height in [(1280, 800), (1920, 1080), (700, 500)]:
        page.set_viewport_size({"width": width, "height": height})
        page.wait_for_timeout(150)
        settled(page)
        box = page.locator(".plot").bounding_box()
        widths.append(box["width"])
        assert box["x"] + box["width"] <= width
        assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
    assert widths[2] < widths[0] < widths[1]


def test_two_tabs_are_two_views(browser, page, viewer):
    other = browser.new_page()
    open_at(page, viewer, "view=peak&r=0")
    open_at(other, viewer, "view=segments&r=1")
    assert state(page)["view"] == "peak"
    assert state(other)["view"] == "segments"
    other.close()


def test_odd_links_open_something_sensible(page, viewer):
    for words in ["view=nothing&r=99&axis=x&by=y", "from=1e99&to=-5&top=NaN&at=99999999", "r=-1&pin=4000000000", "%%%", "from=500000000&to=500000001"]:
        open_at(page, viewer, words)
        assert page.locator("main section").is_visible()
    # A block that is not there is said, and the browser notes the refusal.
    page.problems[:] = [it for it in page.problems if "400" not in it]


def test_a_wrong_token_shows_a_sentence(browser, viewer):
    page = browser.new_page()
    page.goto(re.sub(r"/[0-9a-f]{32}/", "/" + "0" * 32 + "/", viewer.url))
    assert "the address is not complete" in page.inner_text("body")
    page.close()


def test_light_and_dark_differ_and_are_remembered(page, viewer):
    open_at(page, viewer, "view=timeline&r=0")
    ground = "() => getComputedStyle(document.body).backgroundColor"
    before = page.evaluate(ground)
    page.click("#theme")
    after = page.evaluate(ground)
    assert before != after
    page.reload()
    settled(page)
    assert page.evaluate(ground) == after
    page.evaluate("() => localStorage.clear()")


def hostile(path, protocol):
    """A snapshot whose strings would be markup anywhere else."""
    evil = "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 2'>"
    frames = [{"filename": f"/home/{evil}.py", "line": 7, "name": evil}]
    base = 0x7F0000000000
    event = lambda action, address, size, micros: {  # noqa: E731
        "action": action, "addr": address, "size": size, "stream": 0, "time_us": micros, "frames": frames, "user_metadata": evil,
    }
    trace = [event("segment_alloc", base, 20 << 20, 1), event("alloc", base, 4 << 20, 2), event("alloc", base + (4 << 20), 8 << 20, 5), event("oom", 0, 1 << 40, 9)]
    block = lambda address, size, state: {  # noqa: E731
        "address": address, "size": size, "requested_size": size, "state": state, "frames": frames,
    }
    segment = {
        "device": 0, "address": base, "total_size": 20 << 20, "stream": 0, "segment_type": "large", "segment_pool_id": (0, 0), "is_expandable": False,
        "frames": frames,
        "blocks": [block(base, 4 << 20, "active_allocated"), block(base + (4 << 20), 8 << 20, "active_allocated"), block(base + (12 << 20), 8 << 20, "inactive")],
    }
    annotations = [{"stage": "START", "name": evil, "device": 0, "time_us": 3}, {"stage": "END", "name": evil, "device": 0, "time_us": 4}]
    snapshot = {"segments": [segment], "device_traces": [trace], "allocator_settings": {}, "external_annotations": annotations}
    path.write_bytes(pickle.dumps(snapshot, protocol=protocol))


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_markup_in_a_recording_is_shown_and_not_run(page, tmp_path, protocol):
    path = tmp_path / "<img src=x onerror=alert(1)>.pickle"
    hostile(path, protocol)
    with viewing(path) as viewer:
        for view in VIEWS:
            open_at(page, viewer, f"view={view}&pin=0")
            page.wait_for_function("() => document.querySelector('#side').textContent.includes('<script>')")
            assert page.evaluate("() => window.hacked") is None
            assert page.locator("main script, main img, #side script, #side img").count() == 0


def test_one_file_opens_from_disk(page, plimsoll, tmp_path):
    out = tmp_path / "page.html"
    ran = plimsoll.run("view", SNAPSHOTS / "oom-gpt2-b32-cap12.pickle", zipped("train", tmp_path), "--html", out)
    assert (ran.code, ran.stdout, ran.stderr) == (0, "", "")
    asked = []
    page.on("request", lambda it: asked.append(it.url))
    page.goto(out.as_uri())
    settled(page)
    assert 2 < colors(page)
    for index, view in enumerate(VIEWS):
        page.keyboard.press(str(index + 1))
        settled(page)
        assert state(page)["view"] == view
        assert "undefined" not in page.inner_text("main")
    assert {it.split(":")[0] for it in asked} <= {"file", "data"}


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_markup_does_not_end_the_one_file(page, plimsoll, tmp_path, protocol):
    path, out = tmp_path / "hostile.pickle", tmp_path / "page.html"
    hostile(path, protocol)
    plimsoll.run("view", path, "--html", out)
    page.goto(out.as_uri() + "#view=peak&pin=1")
    settled(page)
    page.wait_for_function("() => document.querySelector('#side').textContent.includes('<script>')")
    assert page.evaluate("() => window.hacked") is None


def test_a_state_without_history_and_a_recording_without_memory(page, plimsoll, tmp_path):
    snapshot = pickle.loads((SNAPSHOTS / "mempool.pickle").read_bytes())
    state_only = tmp_path / "state.pickle"
    state_only.write_bytes(pickle.dumps({**snapshot, "device_traces": [[] for _ in snapshot["device_traces"]]}))
    with viewing(state_only) as viewer:
        for view in VIEWS:
            open_at(page, viewer, f"view={view}")
            assert "a final state and no history" in page.inner_text("main")
    empty = tmp_path / "empty.pickle"
    empty.write_bytes(pickle.dumps({"segments": [], "device_traces": [[]]}))
    plimsoll.run("view", empty, "--no-open").assert_sentence("nothing to look at")


def test_several_devices_are_several_scenes(page, tmp_path):
    snapshot = pickle.loads((SNAPSHOTS / "seed-mlp-adam-b64.pickle").read_bytes())
    trace = max(snapshot["device_traces"], key=len)
    second = [{**segment, "device": 1} for segment in copy.deepcopy(snapshot["segments"])]
    path = tmp_path / "two.pickle"
    path.write_bytes(pickle.dumps({**snapshot, "segments": snapshot["segments"] + second, "device_traces": [trace, copy.deepcopy(trace)]}))
    with viewing(path) as viewer:
        open_at(page, viewer, "view=ranks")
        assert page.locator("#scene option").count() == 2
        assert "device 1" in page.inner_text("main")
        assert "No line holds more or less" in page.inner_text("main")


