"""Two recordings at once: the second hangs below the first, step under step; what differs stands first, and lights its blocks in both."""

import pickle

import pytest
from viewer import FIXTURES, SNAPSHOTS, settled, viewing

RANKS = [FIXTURES / "distributed" / f"ddp.rank{it}.pickle.xz" for it in (0, 1)]


def moved(path, to, change):
    """The same recording, where each file is another."""

    def walk(it):
        if isinstance(it, dict):
            return {key: change(value) if key == "filename" else walk(value) for key, value in it.items()}
        return [walk(value) for value in it] if isinstance(it, list) else it

    to.write_bytes(pickle.dumps(walk(pickle.loads(path.read_bytes()))))
    return to


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """A small program, and the same on another machine with four times the batch."""
    folder = tmp_path_factory.mktemp("pair")
    other = moved(SNAPSHOTS / "seed-deepcnn-adam-b64.pickle", folder / "elsewhere.pickle", lambda it: it.replace("/home/user/", "/root/jobs/17/"))
    with viewing(SNAPSHOTS / "seed-mlp-adam-b64.pickle", other, *RANKS) as viewer:
        yield viewer


def open_both(page, viewer, words):
    page.goto("about:blank")
    page.goto(f"{viewer.url}#view=timeline&{words}")
    settled(page)
    page.wait_for_function("() => { const { other } = window.plimsoll.page.view; return other?.data && other.picture.data === other.data; }")
    page.wait_for_selector(".differs .lead")


@pytest.mark.soak
def test_what_differs_stands_first_and_lights_its_blocks_in_both(page, pair):
    open_both(page, pair, "r=0&with=1")
    rows = page.evaluate("async () => (await fetch('api/changes?r=0&position=peak&other=1&with=peak')).json()")["rows"]
    groups = [it["key"] for it in page.evaluate("() => window.plimsoll.page.scenes[0].groups.category")]
    differing = [it for it in rows if it["before"] != it["after"]]
    assert f"Show all {len(differing)} differences" in page.inner_text(".differs")
    page.click(".differs > button.link")
    assert page.locator(".differs tbody tr").count() == len(differing)
    known = [0, 0]
    for index, row in enumerate(differing):
        page.locator(".differs tbody button").nth(index).click()
        page.wait_for_function("(index) => document.querySelectorAll('.differs tbody tr')[index].classList.contains('chosen')", arg=index)
        settled(page)
        page.wait_for_timeout(150)
        lit = page.evaluate("async () => { const it = await import('./selection.js'); return [[...it.chosen()], [...it.chosenBelow()]]; }")
        for side, name in enumerate(("before", "after")):
            owner = row["owners"][side]
            if owner is None:
                assert (row[name], lit[side]) == ([0, 0], [])
                continue
            known[side] += 1
            of = f"owner:{owner}:{groups.index(row['category'])}"
            told = page.evaluate("async ([r, of]) => (await fetch(`api/select?r=${r}&of=${of}&position=peak`)).json()", [side, of])
            assert lit[side] == told["lives"]
            assert told["live"] == row[name], "what the row says is what is lit at the peak"
    assert all(known)


@pytest.mark.soak
def test_the_second_hangs_below_at_the_places_of_the_first(page, pair):
    open_both(page, pair, "r=2&with=3")
    assert "peaks" in page.inner_text(".differs .lead") or "at its peak" in page.inner_text(".differs .lead")
    steps = [page.evaluate("async (r) => (await fetch(`api/marks?r=${r}`)).json()", r)["steps"] for r in (2, 3)]
    placed = page.evaluate("(ends) => ends.map((it) => window.plimsoll.page.view.other.align.toOwn(it))", [it["end"] for it in steps[1][:-1]])
    assert placed == [it["end"] for it in steps[0][:-1]]
    # As high as what is allocated, block by block and from the top.
    high, wanted, tall = page.evaluate(
        """() => {
            const { other, scale } = window.plimsoll.page.view;
            const { picture, data } = other;
            const x = Math.floor(picture.width / 3);
            let high = 0;
            while (high < picture.height && picture.what[high * picture.width + x]) high++;
            const { column } = picture.at(x, 0);
            return [high, (data.allocated[column] / (scale.high - scale.low)) * picture.height, other.curve.length];
        }"""
    )
    assert abs(high - wanted) <= 2
    assert 100 < tall
    # A block below is pointed at and pinned; what pins one above lets go of it.
    box = page.locator(".plotbox.lower .plot").bounding_box()
    x, y = box["x"] + box["width"] / 3, box["y"] + min(12, high / 2)
    page.mouse.move(x, y)
    page.wait_for_selector("#tip:not([hidden])")
    assert "below: event" in page.inner_text("#tip")
    page.mouse.click(x, y)
    page.wait_for_selector("#side:not([hidden])")
    state = page.evaluate("() => ({ ...window.plimsoll.state })")
    assert state["pin"] is None
    if state["below"] is not None:
        facts = page.evaluate("async (life) => (await fetch(`api/block?r=3&life=${life}`)).json()", state["below"])
        assert f"{facts['size']:,} bytes" in page.inner_text("#side")


def test_keys_put_the_second_above(page, pair):
    open_both(page, pair, "r=0&with=1&sel=category:1")
    page.keyboard.press("x")
    page.wait_for_function("() => window.plimsoll.state.r === 1 && window.plimsoll.state.with === 0")
    settled(page)
    page.keyboard.press("j")
    page.wait_for_function("() => window.plimsoll.state.pin !== null")
    page.keyboard.press("Escape")
    page.keyboard.press("x")
    page.wait_for_function("() => window.plimsoll.state.r === 0 && window.plimsoll.state.with === 1")


def test_lines_have_the_colours_that_they_have_above(page, tmp_path):
    path = SNAPSHOTS / "lstm-adam-b32-s128.pickle"
    # In another folder, where the file has the same name; and where it has another, too.
    elsewhere = moved(path, tmp_path / "elsewhere.pickle", lambda it: it.replace("/home/user/", "/root/jobs/17/"))
    with viewing(path, elsewhere) as viewer:
        open_both(page, viewer, "r=0&with=1&by=line")
        own, theirs = page.evaluate("async () => { const { colorOf } = await import('./palette.js'); const { page } = window.plimsoll; return [page.scenes[0].groups.line.map(colorOf), page.view.other.own]; }")
        assert theirs == own
        assert "As much allocated" in page.inner_text(".differs .lead")
        assert "No differences" in page.inner_text(".differs")
        page.goto("about:blank")


@pytest.mark.soak
def test_curve_only_and_back(page, pair):
    open_both(page, pair, "r=2&with=3")
    page.locator(".pairing label", has_text="curve only").click()
    page.wait_for_selector(".plotbox.lower", state="hidden")
    page.wait_for_function("() => window.plimsoll.page.view.other.data?.k === 0")
    assert max(bytes for _, bytes in page.evaluate("() => window.plimsoll.page.view.other.curve")) == page.evaluate("() => window.plimsoll.page.scenes[3].peak_allocated")
    page.locator(".pairing label", has_text="blocks below").click()
    page.wait_for_selector(".plotbox.lower")
    page.select_option("select[aria-label='Show another recording with this one']", "")
    page.wait_for_selector(".plotbox.lower", state="detached")
    assert page.locator(".differs").count() == 0


def test_a_page_in_one_file_shows_both(page, plimsoll, tmp_path):
    out = tmp_path / "page.html"
    plimsoll.run("view", SNAPSHOTS / "seed-mlp-adam-b64.pickle", SNAPSHOTS / "seed-deepcnn-adam-b64.pickle", "--html", out)
    page.goto(out.as_uri() + "#view=timeline&r=0&with=1")
    settled(page)
    page.wait_for_selector(".differs tbody button")
    page.locator(".differs tbody button").first.click()
    page.wait_for_selector(".differs tr.chosen")
    page.wait_for_function("() => window.plimsoll.page.view.other?.data?.k > 0")


def test_ranks_lead_to_both(page, pair):
    page.goto("about:blank")
    page.goto(f"{pair.url}#view=ranks")
    page.wait_for_selector(".ranks .changes button")
    page.locator(".ranks .changes button").first.click()
    page.wait_for_selector(".differs tr.chosen")


@pytest.mark.soak
def test_hands_do_below_what_they_do_above(page, pair):
    open_both(page, pair, "r=2&with=3")
    box = page.locator(".plotbox.lower .plot").bounding_box()
    x, y = box["x"] + box["width"] * 0.4, box["y"] + box["height"] * 0.25
    bytes_at = "([y]) => { const { scale, other } = window.plimsoll.page.view; const box = other.canvas.getBoundingClientRect(); return scale.low + (scale.high - scale.low) * ((y - box.y) / box.height); }"
    before = page.evaluate(bytes_at, [y])
    page.mouse.move(x, y)
    page.keyboard.down("Alt")
    for _ in range(3):
        page.mouse.wheel(0, -60)
    page.keyboard.up("Alt")
    settled(page)
    assert page.evaluate("() => window.plimsoll.state.top") is not None
    assert page.evaluate(bytes_at, [y]) == pytest.approx(before, rel=0.02), "what is under the cursor stays there"
    page.mouse.wheel(0, -60)
    settled(page)
    assert page.evaluate("() => window.plimsoll.state.from") is not None
    page.keyboard.press("0")
    page.keyboard.down("Shift")
    page.mouse.down()
    page.mouse.move(x + 150, y + 40, steps=3)
    page.mouse.up()
    page.keyboard.up("Shift")
    state = page.evaluate("() => ({ ...window.plimsoll.state })")
    assert state["from"] is not None and state["low"] is not None
    # A tip goes when the picture moves under it.
    page.keyboard.press("0")
    page.mouse.move(x, y - 10)
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("#tip", state="hidden")


def test_on_a_phone_both_recordings_numbers_are_seen_without_moving_the_table(page, pair):
    page.set_viewport_size({"width": 390, "height": 844})
    open_both(page, pair, "r=0&with=1")
    page.wait_for_selector(".differs .stacks td")
    assert page.evaluate("() => document.querySelector('.differs .scroll').scrollWidth") <= 390
    cells = page.evaluate("() => [...document.querySelectorAll('.differs tbody tr:first-child td')].map((it) => [it.dataset.heading, it.getBoundingClientRect().left, it.getBoundingClientRect().right, it.getBoundingClientRect().top])")
    assert [it[0] for it in cells] == ["line", "category", "above", "below", "difference"]
    assert all(0 <= left and right <= 390 for _, left, right, _ in cells)
    tops = [it[3] for it in cells]
    assert tops == sorted(set(tops)), "each on a line of its own"
