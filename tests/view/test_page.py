"""The page in a real Chromium, on recordings of real runs."""

import copy
import json
import pickle
import re

import pytest
from viewer import FILES, FIXTURES, SNAPSHOTS, settled, viewing, zipped

VIEWS = ["answer", "timeline", "peak", "segments", "growth", "whatif", "ranks"]
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


@pytest.mark.matrix(3)
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
    assert "The recorded requests fit" in page.inner_text(".result")
    page.select_option(".form select >> nth=0", "own")
    page.fill(".form input >> nth=0", "1MiB")
    page.keyboard.press("Enter")
    page.wait_for_selector(".result .bad")
    assert "run out of memory" in page.inner_text(".result")
    page.fill(".form input >> nth=0", "a lot")
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.querySelector('.result').textContent.includes('not a size')")
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


@pytest.mark.soak
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


@pytest.mark.matrix(1)
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
        page.goto("about:blank")


def test_one_file_opens_from_disk(page, plimsoll, tmp_path):
    out = tmp_path / "page.html"
    ran = plimsoll.run("view", SNAPSHOTS / "oom-gpt2-b32-cap12.pickle", zipped("train", tmp_path), "--html", out)
    assert (ran.code, ran.stdout, ran.stderr) == (0, "", "")
    asked = []
    page.on("request", lambda it: asked.append(it.url))
    page.goto(out.as_uri() + "#view=timeline")
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


@pytest.mark.soak
def test_a_state_without_history_and_a_recording_without_memory(page, plimsoll, tmp_path):
    snapshot = pickle.loads((SNAPSHOTS / "mempool.pickle").read_bytes())
    state_only = tmp_path / "state.pickle"
    state_only.write_bytes(pickle.dumps({**snapshot, "device_traces": [[] for _ in snapshot["device_traces"]]}))
    with viewing(state_only) as viewer:
        for view in VIEWS:
            open_at(page, viewer, f"view={view}")
            assert "only the blocks that were live at its end" in page.inner_text("main")
    empty = tmp_path / "empty.pickle"
    empty.write_bytes(pickle.dumps({"segments": [], "device_traces": [[]]}))
    plimsoll.run("view", empty, "--no-open").assert_sentence("nothing to show")


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
        assert "No differences" in page.inner_text("main")


def own_words(page):
    """The legend of the timeline."""
    return page.inner_text(".timeline .legend")


def test_pools_and_what_private_ones_hold_are_bands(page, viewer):
    open_at(page, viewer, "view=timeline&r=3&by=pool")
    legend = own_words(page)
    assert re.search(r"private pool \(\d+, \d+\): held and free", legend), legend
    assert "default pool" in legend
    seen = page.evaluate(
        """() => {
            const { picture } = window.plimsoll.page.view;
            const groups = window.plimsoll.page.scenes[3].groups.pool;
            const seen = new Set();
            for (let x = 0; x < picture.width; x += 3) for (let y = 0; y < picture.height; y++) {
                const { group } = picture.at(x, y);
                if (group !== undefined) seen.add(groups[group].key);
            }
            return [...seen].sort();
        }"""
    )
    assert seen == ["held", "pool"]
    # A run without private pools has one colour for all.
    open_at(page, viewer, "view=timeline&r=0&by=pool")
    assert "private" not in own_words(page)


def edited(path, name, edit):
    """A snapshot of the fixtures after `edit`, written to `path`."""
    snapshot = pickle.loads((SNAPSHOTS / f"{name}.pickle").read_bytes())
    edit(snapshot)
    path.write_bytes(pickle.dumps(snapshot, protocol=4))
    return path


def lose_the_beginning(snapshot):
    snapshot["device_traces"] = [it[len(it) // 2 :] for it in snapshot["device_traces"]]


def lose_stacks(snapshot):
    def without(it):
        if isinstance(it, dict):
            return {key: [] if key == "frames" else without(value) for key, value in it.items()}
        return [without(value) for value in it] if isinstance(it, list) else it

    snapshot.update(without(snapshot))


def see_through_cpp(snapshot):
    below = [{"name": "at::empty<c10::SymInt>(c10::ArrayRef<&>)", "filename": "??", "line": 0}, {"name": "PyEval_EvalFrame", "filename": "ceval.c", "line": 1}]
    for trace in snapshot["device_traces"]:
        for event in trace:
            # Autograd's threads run no Python.
            engine = [{"name": "torch::autograd::Engine::thread_main(std::shared_ptr<torch::autograd::GraphTask> const&)", "filename": "??", "line": 0}]
            event["frames"] = below + (list(event["frames"]) or engine)


def grow_in_segments_that_expand(snapshot):
    for trace in snapshot["device_traces"]:
        for event in trace:
            event["action"] = {"segment_alloc": "segment_map", "segment_free": "segment_unmap"}.get(event["action"], event["action"])
    for segment in snapshot["segments"]:
        segment["is_expandable"] = True


def go_through_views(page, viewer):
    """What all views say, none of them with a hole in it."""
    said = {}
    for view in VIEWS:
        open_at(page, viewer, f"view={view}")
        said[view] = page.inner_text("main")
        assert "undefined" not in said[view], view
        assert "NaN" not in said[view], view
    return said


def test_what_the_ring_lost_is_shown_as_lost(page, viewer, tmp_path):
    path = edited(tmp_path / "ring.pickle", "seed-mlp-adam-b64", lose_the_beginning)
    hatched = """() => {
        const canvas = document.querySelector(".over");
        const ratio = canvas.width / canvas.getBoundingClientRect().width;
        const { data } = canvas.getContext("2d").getImageData(76 * ratio, 100 * ratio, 20 * ratio, 60 * ratio);
        let red = 0;
        for (let i = 0; i < data.length; i += 4) if (data[i + 1] + 60 < data[i] && data[i + 3]) red += 1;
        return red;
    }"""
    with viewing(path) as short:
        open_at(page, short, "view=timeline")
        assert "the recorder's ring was full" in own_words(page)
        assert "overwritten" in page.inner_text(".summary")
        assert 50 < page.evaluate(hatched)
        page.keyboard.press("+")
        settled(page)
        page.wait_for_timeout(100)
        assert page.evaluate(hatched) == 0, "what was lost lies before the first event only"
    open_at(page, viewer, "view=timeline&r=0")
    assert "lost" not in own_words(page)
    assert page.evaluate(hatched) == 0


@pytest.mark.soak
def test_without_stacks_it_says_so_and_shows_the_rest(page, tmp_path):
    with viewing(edited(tmp_path / "bare.pickle", "seed-mlp-adam-b64", lose_stacks)) as viewer:
        said = go_through_views(page, viewer)
        assert "The recording has no call stacks" in said["timeline"]
        open_at(page, viewer, "view=timeline&pin=3")
        page.wait_for_function("() => document.querySelector('#side').textContent.includes('The recording has no stacks')")


@pytest.mark.soak
def test_stacks_of_cpp_are_read_and_the_users_line_is_found(page, viewer, tmp_path):
    with viewing(edited(tmp_path / "cpp.pickle", "seed-mlp-adam-b64", see_through_cpp)) as mixed:
        said = go_through_views(page, mixed)["peak"]
    open_at(page, viewer, "view=peak&r=0")
    lines = set(re.findall(r"\w+\.py:\d+ in \S+", page.inner_text("table.list")))
    assert lines
    assert lines <= set(re.findall(r"\w+\.py:\d+ in \S+", said))
    assert "PyEval_EvalFrame" not in said
    assert "at::empty" in said


@pytest.mark.soak
def test_segments_that_expand_are_marked(page, tmp_path):
    with viewing(edited(tmp_path / "expandable.pickle", "seed-mlp-adam-b64", grow_in_segments_that_expand)) as viewer:
        assert "expandable segment" in go_through_views(page, viewer)["segments"]


@pytest.mark.soak
def test_two_ranks_are_beside_each_other(page):
    ranks = [FIXTURES / "distributed" / f"ddp.rank{it}.pickle.xz" for it in (0, 1)]
    with viewing(*ranks) as viewer:
        said = go_through_views(page, viewer)["ranks"]
        assert "rank0" in said
        assert "rank1" in said
        assert "allocated at the peak of" in said
        assert page.locator(".rankbar").count() == 2


def test_two_moments_differ_by_line_by_purpose_and_by_module(page, viewer):
    open_at(page, viewer, f"view=peak&r={len(FILES)}&at=300&compare=40")
    total = page.inner_text(".difference h2").split(": ")[1]
    seen = set()
    for label in ["by line", "by category", "by module"]:
        page.locator(".difference label", has_text=label).click()
        heading = page.inner_text(".difference th >> nth=0")
        seen.add(heading)
        exact = page.eval_on_selector_all(".difference td[title$=bytes]:last-child", "all => all.map((it) => Number(it.title.replace(/[^-\\d]/g, '')))")
        assert exact
        written = page.evaluate("async (bytes) => { const { signed } = await import('./differs.js'); return signed(bytes); }", sum(exact))
        assert written == total, label
    assert seen == {"line", "category", "module"}


@pytest.mark.soak
def test_the_address_keeps_what_was_asked_of_what_if(page, viewer):
    open_at(page, viewer, "view=whatif&r=0&card=own&memory=1MiB&conf=max_split_size_mb%3A64")
    assert "run out of memory" in page.inner_text(".result")
    assert page.input_value(".form input >> nth=2") == "max_split_size_mb:64"
    page.select_option(".form select >> nth=0", "h100-80g")
    page.wait_for_function("() => document.querySelector('.result').textContent.includes('The recorded requests fit:')")
    page.wait_for_function("() => location.hash.includes('card=h100-80g')")
    link = page.url
    open_at(page, viewer, "view=whatif&r=0")
    page.goto("about:blank")
    page.goto(link)
    settled(page)
    assert page.input_value(".form select >> nth=0") == "h100-80g"
    assert page.input_value(".form input >> nth=2") == "max_split_size_mb:64"


def test_a_tip_in_the_map_says_whose_a_block_is(page, viewer):
    open_at(page, viewer, f"view=segments&r={len(FILES)}")
    box = page.locator(".map").bounding_box()
    for x in range(4, int(box["width"]), 9):
        page.mouse.move(box["x"] + x, box["y"] + 10)
        if re.search(r"event \d", page.inner_text("#tip")):
            break
        page.wait_for_timeout(20)
    tip = page.inner_text("#tip")
    assert re.search(r"\w+\.py:\d+ in", tip) or "from event" in tip, tip
    assert "in a segment of" in tip


def test_a_stack_is_copied(browser, page, viewer):
    browser.grant_permissions(["clipboard-read", "clipboard-write"])
    open_at(page, viewer, "view=timeline&r=0&pin=5")
    page.wait_for_selector("#side .stack li")
    innermost = page.inner_text("#side .stack .where >> nth=0")
    page.get_by_role("button", name="Copy").click()
    page.wait_for_function("() => document.querySelector('#banner').textContent === 'Copied.'")
    text = page.evaluate("() => navigator.clipboard.readText()")
    file, line, function = re.match(r"(.+):(\d+) in (.+)", innermost).groups()
    assert f"{file}:{line} {function}" in text
    assert len(text.splitlines()) == 1 + page.locator("#side .stack li").count()


def test_search_by_function_file_size_and_address(page, viewer):
    open_at(page, viewer, "view=timeline&r=0&pin=5")
    page.wait_for_selector("#side .stack li")
    facts = page.evaluate("async () => (await fetch('api/block?r=0&life=5')).json()")
    file, _, function, *_ = facts["stack"][-1]
    for words in [function, file.split("/")[-1], f"{facts['size']}B", facts["address"]]:
        page.keyboard.press("Escape")
        page.keyboard.press("/")
        page.keyboard.press("Control+A")
        page.keyboard.type(words)
        page.keyboard.press("Enter")
        page.wait_for_function("() => /block/.test(document.querySelector('#found h2')?.textContent)")
        found = page.evaluate("async (words) => (await fetch(`api/select?r=0&position=peak&of=${encodeURIComponent('words:' + words)}`)).json()", words)
        assert found["blocks"], words
        assert f"{found['blocks']:,} block" in page.inner_text("#found h2")


@pytest.mark.soak
def test_everything_that_can_be_used_has_a_name_and_is_reached_by_tab(page, viewer):
    for view in VIEWS:
        open_at(page, viewer, f"view={view}&r={len(FILES)}")
        nameless = page.evaluate(
            """() => [...document.querySelectorAll("button, input, select, [role=img], [role=slider]")].filter((it) => {
                const labels = it.labels ? [...it.labels].map((label) => label.textContent).join("") : "";
                const named = [it.getAttribute("aria-label"), it.title, it.textContent, labels, it.value && it.type === "radio"];
                return !named.some((name) => name && String(name).trim());
            }).map((it) => it.outerHTML)"""
        )
        assert nameless == [], view
        page.evaluate("() => document.activeElement.blur()")
        reached = set()
        for _ in range(14):
            page.keyboard.press("Tab")
            reached.add(page.evaluate("() => document.activeElement.id || document.activeElement.className || document.activeElement.tagName"))
        assert {f"tab-{view}", "words", "theme", "help"} <= reached, reached


def test_keys_for_steps_height_and_comparing(page, viewer):
    open_at(page, viewer, f"view=timeline&r={len(FILES)}")
    starts = []
    for key in "[[]":
        page.keyboard.press(key)
        settled(page)
        starts.append(state(page)["from"])
    assert starts[1] < starts[0] == starts[2]
    page.keyboard.press("Shift+ArrowUp")
    lower = state(page)["top"]
    page.keyboard.press("ArrowUp")
    assert lower < state(page)["top"]
    page.keyboard.press("Shift+ArrowDown")
    page.keyboard.press("Shift+ArrowDown")
    assert state(page)["top"] is None
    page.keyboard.press("p")
    page.wait_for_function("() => window.plimsoll.state.at !== null")
    page.keyboard.press("c")
    assert state(page)["compare"] == state(page)["at"]
    page.keyboard.press("Escape")
    assert state(page)["compare"] is None


def test_findings_lead_to_the_timeline(page, viewer):
    open_at(page, viewer, "view=answer&r=1")
    page.get_by_role("button", name="Show on the timeline").click()
    settled(page)
    now = state(page)
    assert now["view"] == "timeline"
    assert now["at"] == scene(page)["refusals"][-1]["position"]
    assert now["from"] <= now["at"] < now["to"]
    open_at(page, viewer, "view=answer&r=0")
    if page.locator("details:not([open]) > summary").count():
        page.locator("details > summary").first.click()
    page.get_by_role("button", name=re.compile("Show (these|this|the blocks) ")).first.click()
    page.wait_for_selector("#found .hits button")


def test_no_markup_gets_in_by_a_search_or_a_tip(page, tmp_path):
    path = tmp_path / "hostile.pickle"
    hostile(path, 4)
    with viewing(path) as viewer:
        open_at(page, viewer, "view=timeline")
        box = page.locator(".plot").bounding_box()
        page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + box["height"] - 20)
        page.wait_for_function("() => document.querySelector('#tip').textContent.includes('<script>')")
        page.fill("#words", "<script>")
        page.keyboard.press("Enter")
        page.wait_for_function("() => document.querySelector('#found').textContent.includes('<script>')")
        # A tebibyte was requested, and twenty mebibytes are reserved: the picture cuts the request and says so.
        open_at(page, viewer, "view=segments")
        box = page.locator(".map").bounding_box()
        assert box["height"] < 2000
        for y in range(5, 400, 9):
            page.mouse.move(box["x"] + 20, box["y"] + y)
            if page.locator("#tip:not([hidden])").count():
                break
        assert "in a segment of" in page.inner_text("#tip")
        page.wait_for_timeout(200)
        assert page.locator("#tip script, #tip img, #found script, #found img, option img").count() == 0
        assert page.evaluate("() => window.hacked") is None


def test_what_export_writes_opens_from_disk(page, plimsoll, tmp_path):
    out = tmp_path / "page.html"
    ran = plimsoll.run("export", SNAPSHOTS / "mempool.pickle", "--to", "html", "-o", out)
    assert ran.code == 0, ran
    asked = []
    page.on("request", lambda it: asked.append(it.url))
    for view in VIEWS:
        page.goto("about:blank")
        page.goto(f"{out.as_uri()}#view={view}&by=pool")
        settled(page)
        said = page.inner_text("main")
        assert "undefined" not in said
        if view == "timeline":
            assert 2 < colors(page)
            assert "held and free" in own_words(page)
    assert {it.split(":")[0] for it in asked} <= {"file", "data", "about"}
