"""Time and place: the peak of a step, the slider, the events, flame graphs of a stretch, source lines, saved pictures."""

import re

from viewer import FILES, SNAPSHOTS, settled, viewing

TRAIN = len(FILES)


def open_at(page, viewer, words):
    page.goto("about:blank")
    page.goto(f"{viewer.url}#{words}")
    settled(page)


def state(page):
    return page.evaluate("() => ({ ...window.plimsoll.state })")


def cells(page):
    return page.eval_on_selector_all(".flame .cell", "all => all.map((it) => it.getAttribute('aria-label'))")


def test_the_peak_of_any_step_is_one_choice_away(page, viewer):
    open_at(page, viewer, f"view=peak&r={TRAIN}")
    steps = page.evaluate(f"async () => (await fetch('api/marks?r={TRAIN}')).json()")["steps"]
    for step in steps:
        page.select_option("select[aria-label='Peak of a step']", str(step["peak"]))
        page.wait_for_function("(at) => document.querySelector('input[aria-label=Event]').value === String(at)", arg=step["peak"])
        exact = page.locator(".peak .lead b").first.get_attribute("title")
        assert int(re.sub(r"\D", "", exact)) == step["allocated"]


def test_a_slider_goes_through_the_map_and_the_events_are_listed(page, viewer):
    open_at(page, viewer, f"view=segments&r={TRAIN}")
    page.locator(".scrubber input").fill("300")
    page.wait_for_function("() => window.plimsoll.state.at === 300")
    # The list of the moment before stays until this one's is there.
    page.wait_for_function("() => document.querySelector('.eventlist tr.chosen td')?.textContent === '300' && !document.querySelector('.eventlist tr.chosen .quiet')")
    events = page.evaluate(f"async () => (await fetch('api/events?r={TRAIN}&from=300&n=1')).json()")["events"]
    assert page.inner_text(".eventlist tr.chosen td >> nth=1") == events[0]["action"]
    page.locator(".eventlist tr.chosen + tr button").click()
    page.wait_for_function("() => window.plimsoll.state.at === 301")
    page.keyboard.press(",")
    page.wait_for_function("() => window.plimsoll.state.at === 300")


def test_flame_graphs_of_a_stretch_bottom_up_and_with_layers_folded(page, viewer):
    open_at(page, viewer, f"view=peak&r={TRAIN}&from=100&to=500")
    at_peak = cells(page)
    page.locator(".flamebox label", has_text="allocated").click()
    page.wait_for_function("(old) => document.querySelector('.flame .cell').getAttribute('aria-label') !== old", arg=at_peak[0])
    made = page.evaluate(f"async () => (await fetch('api/stretch?r={TRAIN}&from=100&to=500&weigh=made')).json()")["stacks"]
    written = page.evaluate("async (bytes) => (await import('./words.js')).size(bytes)", made[0][2])
    assert cells(page)[0].startswith(f"everything: {written}")
    # Bottom-up has the same sum, and the line that asked at the top.
    page.locator(".flamebox label", has_text="bottom-up").click()
    page.wait_for_timeout(200)
    assert cells(page)[0].startswith(f"everything: {written}")
    assert not any("wrapped_call_impl" in it for it in cells(page))
    page.locator(".flamebox label", has_text="by module").click()
    page.wait_for_timeout(200)
    assert any(re.match(r"\* \(\d+ alike\)", it) for it in cells(page)), cells(page)
    page.locator(".flamebox label", has_text="fold layers").click()
    page.wait_for_timeout(200)
    assert not any(it.startswith("*") for it in cells(page))


def test_rows_are_sorted_and_filtered(page, viewer):
    open_at(page, viewer, f"view=peak&r={TRAIN}")
    rows = lambda: page.eval_on_selector_all(".lines tbody tr", "all => all.map((it) => it.textContent)")  # noqa: E731
    before = rows()
    page.locator(".lines th button", has_text="blocks").click()
    assert rows() != before
    assert page.locator(".lines th[aria-sort=descending]").inner_text() == "blocks"
    page.fill(".lines .filter", "backward")
    assert rows() and all("backward" in it for it in rows())


def test_the_code_around_a_line_stands_beside_it(page, plimsoll, tmp_path):
    import pickle

    script = tmp_path / "workloads.py"
    script.write_text("".join(f"line_{it} = {it}\n" for it in range(1, 200)))

    def here(it):
        if isinstance(it, dict):
            return {key: str(script) if key == "filename" and value.endswith("workloads.py") else here(value) for key, value in it.items()}
        return [here(value) for value in it] if isinstance(it, list) else it

    path = tmp_path / "here.pickle"
    path.write_bytes(pickle.dumps(here(pickle.loads((SNAPSHOTS / "lstm-adam-b32-s128.pickle").read_bytes()))))
    with viewing(path) as viewer:
        open_at(page, viewer, "view=timeline&pin=40")
        page.wait_for_selector("#side pre.source:not([hidden]) .here")
        line = page.inner_text("#side pre.source .here")
        number = re.match(r"\s*(\d+)", line)[1]
        assert f"line_{number} = {number}" in line
        # Only Python files that the recording names are read.
        for file in ("/etc/passwd", str(tmp_path / "other.py")):
            (tmp_path / "other.py").write_text("secret = 1\n")
            told = page.evaluate("async (file) => (await fetch(`api/source?r=0&line=1&file=${encodeURIComponent(file)}`)).json()", file)
            assert told["lines"] == []


def test_what_is_seen_is_saved(page, viewer):
    for words, button, start in [("view=timeline&r=0", "⤓", b"\x89PNG"), ("view=segments&r=0", "Save picture", b"\x89PNG"), (f"view=growth&r={TRAIN}", "Save picture", b"<svg")]:
        open_at(page, viewer, words)
        with page.expect_download() as waiting:
            page.get_by_role("button", name=button).click()
        saved = waiting.value.path().read_bytes()
        assert saved.startswith(start), words
        assert 2000 < len(saved)


def test_what_was_refused_has_its_words_above_the_segments(page, viewer):
    page.add_init_script(
        """window.written = [];
        const { fillText } = CanvasRenderingContext2D.prototype;
        CanvasRenderingContext2D.prototype.fillText = function (text, x, y) { window.written.push([text, y]); return fillText.call(this, text, x, y); };"""
    )
    open_at(page, viewer, "view=segments&r=1")
    page.wait_for_function("() => window.written.some(([text]) => /requested/.test(text))")
    text, y = next(it for it in page.evaluate("() => window.written") if "requested" in it[0])
    rows = page.evaluate("() => window.plimsoll.page.view.pieces.map((it) => it.row)")
    height = page.evaluate("() => document.querySelector('.map').getBoundingClientRect().height") / (max(rows) + 1)
    assert y < min(rows) * height, "the first row of segments covers it"
    assert text.startswith("192.0 MiB")
