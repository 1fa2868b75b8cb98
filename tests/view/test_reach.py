"""Every block can be drawn alone and picked, by mouse and by keys; and the picture moves in both directions."""

import pytest
from viewer import FILES, settled

RECORDINGS = [0, 1, len(FILES)]


def open_at(page, viewer, words):
    page.goto("about:blank")
    page.goto(f"{viewer.url}#{words}")
    settled(page)


def state(page):
    return page.evaluate("() => ({ ...window.plimsoll.state })")


def layers(page):
    """The blocks of the peak, from the bottom to the top."""
    return page.evaluate(
        """async () => {
            const { state, page, asking } = window.plimsoll;
            const { layers } = await asking.ask("layers", { r: state.r, position: page.scenes[state.r].peak_position, by: state.by });
            return layers.map((it) => it[0]).filter((it) => it !== null);
        }"""
    )


# Draws a block alone, and says where its middle is on the screen.
REACH = """async (life) => {
    const { page, state } = window.plimsoll;
    const { view } = page;
    await view.reach(life, page.scenes[state.r].peak_position);
    for (let i = 0; i < 300; i++) {
        await new Promise((done) => requestAnimationFrame(done));
        if (view.isAsking || view.isDue || !view.suits(view.data, view.wanted())) continue;
        const box = view.picture.boxOf(life);
        if (box) {
            const place = view.canvas.getBoundingClientRect();
            const [x, y] = box.inside;
            return { x: place.x + (x + 0.5) / view.ratio, y: place.y + (y + 0.5) / view.ratio, width: (box.x1 - box.x0) / view.ratio, height: (box.y1 - box.y0) / view.ratio, under: view.picture.at(x, y) };
        }
    }
    return null;
}"""


# Where a block that is drawn is on the screen.
POINT = """(life) => {
    const { view } = window.plimsoll.page;
    const [x, y] = view.picture.boxOf(life).inside;
    const place = view.canvas.getBoundingClientRect();
    return [place.x + (x + 0.5) / view.ratio, place.y + (y + 0.5) / view.ratio];
}"""


def drawn_alone(page, viewer, r, every):
    open_at(page, viewer, f"view=timeline&r={r}")
    lives = layers(page)
    assert 10 < len(lives)
    for index, life in list(enumerate(lives))[::every]:
        found = page.evaluate(REACH, life)
        assert found, f"block {life}, {index} of {len(lives)}, is not drawn"
        assert 6 <= found["height"], (life, found)
        assert found["under"]["life"] == life, (life, found)
        if index % 40 == 0:
            # Beside what tells of a block there is less room.
            page.evaluate("() => window.plimsoll.set({ pin: null })")
            page.wait_for_selector("#side", state="hidden")
            page.wait_for_timeout(150)
            settled(page)
            x, y = page.evaluate(POINT, life)
            page.mouse.click(x, y)
            page.wait_for_function("(life) => window.plimsoll.state.pin === life", arg=life)


@pytest.mark.soak
def test_blocks_of_the_peak_are_drawn_alone(page, viewer):
    drawn_alone(page, viewer, RECORDINGS[0], 1)
    drawn_alone(page, viewer, RECORDINGS[2], 12)


@pytest.mark.soak
@pytest.mark.parametrize("r", RECORDINGS)
def test_every_block_of_the_peak_is_drawn_alone(page, viewer, r):
    drawn_alone(page, viewer, r, 1)


@pytest.mark.soak
@pytest.mark.parametrize("r", RECORDINGS)
def test_keys_walk_through_all_blocks_of_the_peak(page, viewer, r):
    open_at(page, viewer, f"view=timeline&r={r}")
    page.keyboard.press("p")
    page.wait_for_function("() => window.plimsoll.state.at !== null")
    lives = layers(page)
    walked = page.evaluate(
        """async (n) => {
            const { page, state } = window.plimsoll;
            const seen = [];
            for (let i = 0; i < n; i++) {
                await page.view.walk(1);
                seen.push(state.pin);
            }
            return seen;
        }""",
        len(lives),
    )
    assert walked == lives
    # By real keys it is the same.
    page.keyboard.press("j")
    page.wait_for_function("(life) => window.plimsoll.state.pin === life", arg=lives[-2])
    page.keyboard.press("k")
    page.wait_for_function("(life) => window.plimsoll.state.pin === life", arg=lives[-1])
    page.wait_for_selector("#side:not([hidden])")
    assert "of" in page.text_content(".timeline .sr")
    page.keyboard.press("z")
    page.wait_for_function("() => window.plimsoll.state.low !== null")
    settled(page)
    assert page.evaluate("(life) => window.plimsoll.page.view.picture.boxOf(life) !== null", lives[-1])


def test_it_moves_and_zooms_in_both_directions(page, viewer):
    open_at(page, viewer, "view=timeline&r=2")
    box = page.locator(".plot").bounding_box()
    x, y = box["x"] + box["width"] * 0.4, box["y"] + box["height"] * 0.3
    bytes_at = "([y]) => { const { scale, canvas } = window.plimsoll.page.view; const box = canvas.getBoundingClientRect(); return scale.low + (scale.high - scale.low) * (1 - (y - box.y) / box.height); }"
    before = page.evaluate(bytes_at, [y])
    page.mouse.move(x, y)
    page.keyboard.down("Alt")
    for _ in range(4):
        page.mouse.wheel(0, -60)
    page.keyboard.up("Alt")
    settled(page)
    zoomed = state(page)
    assert zoomed["top"] is not None
    assert page.evaluate(bytes_at, [y]) == pytest.approx(before, rel=0.01), "what is under the cursor stays there"
    # A drag moves both ways, and is no click.
    page.mouse.wheel(0, -60)
    settled(page)
    before = state(page)
    page.mouse.down()
    page.mouse.move(x + 50, y + 40, steps=4)
    page.mouse.up()
    moved = state(page)
    assert moved["from"] < before["from"]
    assert before["low"] < moved["low"]
    assert moved["pin"] is None
    page.keyboard.press("0")
    assert state(page)["top"] is None
    # A box is zoomed into.
    page.keyboard.down("Shift")
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 200, y + 100, steps=4)
    page.mouse.up()
    page.keyboard.up("Shift")
    boxed = state(page)
    assert boxed["from"] is not None and boxed["low"] is not None
    settled(page)
    # A double click goes to a block.
    page.keyboard.press("0")
    settled(page)
    page.mouse.dblclick(x, box["y"] + box["height"] - 12)
    page.wait_for_function("() => window.plimsoll.state.pin !== null && window.plimsoll.state.top !== null")


def test_two_fingers_pinch(browser, viewer):
    page = browser.new_page()
    page.goto(f"{viewer.url}#view=timeline&r=2")
    settled(page)
    box = page.locator(".plot").bounding_box()
    session = page.context.new_cdp_session(page)
    middle = box["y"] + box["height"] / 2

    def touch(kind, *points):
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": [{"x": x, "y": y, "id": id} for id, (x, y) in enumerate(points)]})

    left, right = box["x"] + box["width"] * 0.4, box["x"] + box["width"] * 0.6
    touch("touchStart", (left, middle))
    touch("touchStart", (left, middle), (right, middle))
    for by in range(0, 160, 40):
        touch("touchMove", (left - by, middle), (right + by, middle))
    touch("touchEnd")
    now = page.evaluate("() => ({ ...window.plimsoll.state })")
    assert now["from"] is not None
    assert now["to"] - now["from"] < 0.8 * page.evaluate("() => window.plimsoll.page.scenes[2].events")
    page.close()


def test_a_category_is_selected_and_zoomed_to_from_the_legend(page, viewer):
    open_at(page, viewer, "view=timeline&r=0")
    settled(page)
    name = page.locator(".legend button").first
    button = name.element_handle()
    name.click()
    page.wait_for_selector("#found .sum")
    settled(page)
    assert state(page)["sel"].startswith("category:")
    assert button.get_attribute("aria-pressed") == "true"
    assert button.evaluate("it => it.isConnected"), "a button that is made anew while it is pressed loses the click"
    page.locator(".legend button").first.dblclick()
    page.wait_for_function("() => window.plimsoll.state.low !== null")


def test_bands_and_blocks_with_room_have_words(page, viewer):
    open_at(page, viewer, "view=timeline&r=0")
    assert page.evaluate("() => window.plimsoll.page.view.overlay.taken.length") >= 2


LABELS = """() => {
    const { overlay } = window.plimsoll.page.view;
    return overlay.taken.filter((it) => it.text).map((it) => ({ ...it, near: Math.min(...overlay.heights(it.x0, it.x1 - it.x0).flat().map((y) => Math.abs(y - it.y))), isAbove: overlay.isAbove(it.x0, it.x1 - it.x0, it.y) }));
}"""


@pytest.mark.parametrize("r", [1, 2, len(FILES)])
def test_no_label_lies_on_another_or_is_struck_by_a_curve(page, viewer, r):
    open_at(page, viewer, f"view=timeline&r={r}")
    labels = page.evaluate(LABELS)
    assert labels
    for at, one in enumerate(labels):
        for other in labels[at + 1 :]:
            assert 14 <= abs(one["y"] - other["y"]) or one["x1"] <= other["x0"] or other["x1"] <= one["x0"], (one, other)
    for it in labels:
        if "refused" in it["text"]:
            assert 10 < it["near"], it
        if it["text"].startswith("Optimizer."):
            assert it["isAbove"], "a name of the program covers nothing of what it is of"


@pytest.mark.soak
def test_each_line_of_a_zoomed_axis_reads_differently_and_whole(page, viewer):
    for low, top in [(1_500_000_000, 1_500_200_000), (146_590_000, 146_600_000), (0, 4096), (100_000, 160_000_000)]:
        open_at(page, viewer, f"view=timeline&r=2&from=250&to=300&low={low}&top={top}")
        ticks, left = page.evaluate("() => { const { scale } = window.plimsoll.page.view; return [scale.ticks(scale.area.height).map((it) => it[1]), scale.left]; }")
        assert 2 <= len(ticks) == len(set(ticks)), ticks
        assert all(it == "0" or it.split(" ")[1] in ("B", "KiB", "MiB", "GiB") for it in ticks), ticks
        widest = page.evaluate("(ticks) => { const c = document.createElement('canvas').getContext('2d'); c.font = '12px system-ui, sans-serif'; return Math.max(...ticks.map((it) => c.measureText(it).width)); }", ticks)
        assert widest + 8 <= left, (ticks, widest, left)


def test_a_turn_of_the_wheel_is_drawn_in_the_next_frame_however_long_the_server_takes(page, viewer):
    open_at(page, viewer, "view=timeline&r=2")
    page.wait_for_timeout(300)
    page.evaluate("() => { const own = window.fetch; window.fetch = async (...it) => { await new Promise((done) => setTimeout(done, 500)); return own(...it); }; }")
    found = page.evaluate(
        """async () => {
            const { view } = window.plimsoll.page;
            const frame = () => new Promise((done) => requestAnimationFrame(done));
            const box = view.canvas.getBoundingClientRect();
            const found = [];
            for (let turn = 0; turn < 6; turn++) {
                await frame();
                const before = view.picture.what.slice();
                view.canvas.dispatchEvent(new WheelEvent("wheel", { deltaY: -120, altKey: turn < 4, clientX: box.x + box.width * 0.6, clientY: box.y + 50, bubbles: true, cancelable: true }));
                await frame();
                found.push([view.picture.what.some((it, at) => it !== before[at]), view.isAsking]);
            }
            return found;
        }"""
    )
    assert all(is_drawn for is_drawn, _ in found), found
    assert any(is_asking for _, is_asking in found), "one of these turns needs an answer"
    settled(page)
    page.wait_for_function("() => { const { view } = window.plimsoll.page; return view.suits(view.data, view.wanted()); }")
