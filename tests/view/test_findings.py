"""What the page says of a finding is what it selects: so many blocks, so many bytes, that line; and what decides first stands first."""

import re

import pytest
from test_tasks import leaking
from viewer import FILES, FIXTURES, SNAPSHOTS, settled, viewing, zipped


@pytest.fixture(scope="module")
def every(tmp_path_factory):
    """All fixtures, a leak, and a leak that ends in an error."""
    folder = tmp_path_factory.mktemp("every")
    files = sorted(SNAPSHOTS.glob("*.pickle"))
    files += [zipped(it, folder) for it in ("train", "oom")]
    files += sorted((FIXTURES / "distributed").glob("ddp.rank*.pickle.xz"))
    files += [leaking(folder / "leak.pickle"), leaking(folder / "fails.pickle", fails=True)]
    with viewing(*files) as viewer:
        yield viewer, len(files)


ANALYSIS = "async () => (await fetch('api/analysis')).json()"


@pytest.mark.soak
def test_the_button_of_each_finding_selects_the_blocks_that_it_counts(page, every):
    viewer, _ = every
    page.goto(viewer.url)
    settled(page)
    scenes = page.evaluate("() => window.plimsoll.page.scenes")
    analysis = page.evaluate(ANALYSIS)
    written = lambda bytes: page.evaluate("async (it) => (await import('./words.js')).size(it)", bytes)  # noqa: E731
    seen = 0
    for r, scene in enumerate(scenes):
        findings = analysis["explanations"][scene["file"]]["findings"]
        for finding, (n, bytes, at) in zip(findings, analysis["blocks"][scene["file"]], strict=True):
            if finding["device"] != scene["device"] or not n:
                continue
            name = (scene["name"], finding["code"])
            page.goto("about:blank")
            page.goto(f"{viewer.url}#r={r}")
            settled(page)
            for it in page.locator(".answer details:not([open]) > summary").all():
                it.click()
            card = page.locator(".answer article.card", has=page.locator("h3", has_text=finding["title"][:60])).first
            button = card.get_by_role("button", name=re.compile("^Show th(is|ese)"))
            blocks = "this block" if n == 1 else f"these {n:,} blocks"
            assert button.inner_text() == f"Show {blocks} ({written(bytes)})", name
            words = " ".join([finding["title"], *finding["evidence"]["facts"]])
            assert written(bytes) in words or f"{n} of them" in words or n == 1 and " each" in words, (name, words)
            if line := finding["evidence"]["line"]:
                assert f"{line['file'].split('/')[-1]}:{line['line']}" in card.inner_text(), name
            button.click()
            page.wait_for_selector("#found .sum")
            assert page.inner_text("#found h2") == ("1 block" if n == 1 else f"{n:,} blocks"), name
            assert int(re.sub(r"\D", "", page.locator("#found .sum b").get_attribute("title"))) == bytes, name
            assert page.evaluate("() => window.plimsoll.state.at") == min(at, scene["events"])
            seen += 1
    assert 5 <= seen


def test_a_search_for_words_of_a_finding_leads_to_it(page, every):
    """Also where it has no blocks, as `fragmentation/slack`."""
    viewer, _ = every
    page.goto(viewer.url)
    settled(page)
    scenes = page.evaluate("() => window.plimsoll.page.scenes")
    analysis = page.evaluate(ANALYSIS)
    without, known = 0, set()
    for r, scene in enumerate(scenes):
        findings = analysis["explanations"][scene["file"]]["findings"]
        for index, (finding, (n, _, _)) in enumerate(zip(findings, analysis["blocks"][scene["file"]], strict=True)):
            # One of each kind: the page makes them all alike.
            if finding["device"] != scene["device"] or finding["code"] in known:
                continue
            known.add(finding["code"])
            page.goto("about:blank")
            page.goto(f"{viewer.url}#r={r}&view=timeline")
            settled(page)
            page.fill("#words", finding["code"].split("/")[-1])
            page.press("#words", "Enter")
            hit = page.locator("#found .hits button", has_text=finding["title"][:60]).first
            hit.click()
            settled(page)
            card = page.locator(f"#finding-{index}.meant")
            assert card.is_visible() and finding["code"] in card.inner_text(), finding["code"]
            box = card.bounding_box()
            assert 0 <= box["y"] + box["height"] / 2 < page.viewport_size["height"], finding["code"]
            without += not n
    assert 1 <= without
    page.get_by_role("tab", name="Timeline").click()
    settled(page)
    assert page.evaluate("() => window.plimsoll.state.finding") is None


@pytest.mark.soak
def test_the_headline_its_line_and_its_button_are_of_the_first_finding(page, every):
    viewer, n = every
    page.goto(viewer.url)
    settled(page)
    analysis = page.evaluate(ANALYSIS)
    scenes = page.evaluate("() => window.plimsoll.page.scenes")
    leaks = 0
    for r, scene in enumerate(scenes):
        told = analysis["explanations"][scene["file"]]
        page.goto("about:blank")
        page.goto(f"{viewer.url}#r={r}")
        settled(page)
        headline = page.locator(".answer .headline")
        first = told["findings"][0] if told["findings"] else None
        button = headline.get_by_role("button", name=re.compile("^Show th(is|ese)"))
        called = [it["library_at"] for it in told["ooms"] if it["library_at"]]
        assert all(f"which called {it['file'].split('/')[-1]}:{it['line']}" in headline.inner_text() for it in called), called
        if told["ooms"] or not first or first["weight"] != "problem":
            assert button.count() == 0, scene["name"]
            continue
        leaks += 1
        assert first["title"][1:] in headline.inner_text()
        line = first["evidence"]["line"]
        assert f"{line['file'].split('/')[-1]}:{line['line']}" in headline.inner_text()
        count, bytes, _ = analysis["blocks"][scene["file"]][0]
        button.click()
        page.wait_for_selector("#found .sum")
        assert page.inner_text("#found h2").split(" ")[0] == f"{count:,}"
    assert leaks


def test_growth_has_a_difference_a_slope_and_the_line(page, every):
    viewer, n = every
    page.goto(f"{viewer.url}#view=growth&r={n - 2}")
    settled(page)
    page.wait_for_selector(".growth .list")
    said = page.inner_text(".growth")
    assert "since step 2, +8.0 MiB a step on average" in said
    assert re.search(r"\+8\.0 MiB a step .* at train\.py:\d+", said), said
    assert page.inner_text(".growth th >> nth=4") == "difference"
    differences = page.locator(".growth td.more").all_inner_texts()
    assert differences and set(differences) == {"+8.0 MiB"}


def test_growth_of_one_step_has_its_phases(page, every):
    viewer, _ = every
    page.goto(viewer.url)
    settled(page)
    r = next(r for r in range(20) if page.evaluate(f"async () => (await (await fetch('api/marks?r={r}')).json()).steps.length") == 1)
    page.goto("about:blank")
    page.goto(f"{viewer.url}#view=growth&r={r}")
    settled(page)
    page.wait_for_function("() => document.querySelectorAll('.growth .list tbody tr').length > 1")
    assert "forward" in page.inner_text(".growth")


@pytest.mark.soak
def test_what_if_opens_on_an_answer_and_never_promises_what_is_not_recorded(page, every):
    viewer, _ = every
    page.goto(viewer.url)
    settled(page)
    scenes = page.evaluate("() => window.plimsoll.page.scenes")
    assert any(it["ends_failing"] for it in scenes)
    for r, scene in enumerate(scenes):
        page.goto("about:blank")
        page.goto(f"{viewer.url}#view=whatif&r={r}")
        settled(page)
        page.wait_for_selector(".sweep", timeout=60_000)
        said = page.inner_text(".whatif")
        assert said.index("Settings of the allocator") < said.index("One card or setting")
        assert re.search(r"is the smallest of \d+ cards|No card of the list is large enough", said)
        as_recorded = page.locator(".sweep >> nth=0").locator("tr", has_text="as recorded").first
        without = re.search(r"([\w-]+) \([^)]*\) is(?: the smallest of \d+ cards that (?:is enough|serves every recorded request))?\.", said)
        if without:  # The table of settings and the list of cards name one card.
            assert as_recorded.locator("td").last.inner_text() == without[1], scene["name"]
        if scene["ends_failing"]:
            assert "is not in the file" in said
            assert not re.search(r"requests fit|would have run|is enough\b", said), scene["name"]
        assert page.locator(".form input >> nth=0").is_enabled()


def test_first_and_last_step_are_compared_at_like_moments(page, every):
    viewer, n = every
    page.goto(f"{viewer.url}#r={n - 2}")
    settled(page)
    page.get_by_role("button", name=re.compile("Compare the first step with the last")).click()
    page.wait_for_selector(".difference h2")
    steps = page.evaluate(f"async () => (await fetch('api/marks?r={n - 2}')).json()")["steps"]
    # Nothing follows the last step of a snapshot, so what stays after it is unknown.
    assert [it["after"] is None for it in steps] == [False] * 5 + [True]
    more = (steps[-2]["after"] - steps[0]["after"]) >> 20
    assert 0 < more
    assert page.inner_text(".difference h2") == f"From after step 1 to after step 5: +{more}.0 MiB"
    page.get_by_label("The same moment of both steps").select_option("forward")
    page.wait_for_function("() => !document.querySelector('.difference h2').textContent.includes('after step 1')")
    phases = page.evaluate(
        """async () => {
            const { state, asking } = window.plimsoll;
            const at = async (position) => (await asking.ask('moment', { r: state.r, position })).phase;
            return [await at(state.compare), await at(state.at)];
        }"""
    )
    assert phases == ["forward", "forward"]


@pytest.mark.matrix(3)
@pytest.mark.parametrize("words", ["192", "192.0", "192 MB", "201 MB", "192MiB", "192.0 MiB", "192m"])
def test_sizes_are_found_as_people_type_them(page, every, words):
    viewer, _ = every
    page.goto(viewer.url)
    settled(page)
    r = page.evaluate("() => window.plimsoll.page.scenes.findIndex((it) => it.name.startsWith('oom-gpt2'))")
    page.goto("about:blank")
    page.goto(f"{viewer.url}#view=timeline&r={r}")
    settled(page)
    page.keyboard.press("/")
    page.keyboard.type(words)
    page.keyboard.press("Enter")
    page.wait_for_selector("#found .sum")
    sizes = page.locator("#found .hits b").all_inner_texts()
    assert sizes and set(sizes) == {"192.0 MiB"}, (words, sizes)


@pytest.mark.soak
def test_words_of_the_page_are_found_and_the_keys_act_on_it_again(page, every):
    viewer, n = every
    leak = n - 2
    for words in ("train.py:30", "train.py:30 in main", "activations", "stay on the device", "forward train.py:20"):
        page.goto("about:blank")
        page.goto(f"{viewer.url}#view=timeline&r={leak}")
        settled(page)
        page.keyboard.press("/")
        page.keyboard.type(words)
        page.keyboard.press("Enter")
        page.wait_for_selector("#found .sum")
        assert re.match(r"[\d,]+ block", page.inner_text("#found h2")), words
    page.keyboard.press("n")
    page.wait_for_function("() => window.plimsoll.state.pin !== null")
    assert page.input_value("#words") == words, "the key did not go into the box"
    page.keyboard.press("z")
    page.wait_for_function("() => window.plimsoll.state.low !== null")
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    page.keyboard.press("Escape")
    assert page.evaluate("() => window.plimsoll.state.sel"), "Esc leaves the box, and the selection stays"
    page.keyboard.press("Escape")
    assert not page.evaluate("() => window.plimsoll.state.sel")


def test_the_page_is_saved_as_one_file(page, every, tmp_path):
    viewer, _ = every
    page.goto(viewer.url)
    settled(page)
    with page.expect_download() as download:
        page.click("#save")
    out = tmp_path / download.value.suggested_filename
    assert out.suffix == ".html"
    download.value.save_as(out)
    page.goto(out.as_uri())
    settled(page)
    assert page.locator("#save").is_hidden()
    assert page.locator("#scene option").count() >= len(FILES)


def test_every_event_is_in_a_list_with_find_and_arrows(page, every):
    viewer, _ = every
    page.goto(viewer.url)
    settled(page)
    scenes = page.evaluate("() => window.plimsoll.page.scenes")
    r = next(index for index, it in enumerate(scenes) if "lstm" in it["name"])
    page.goto("about:blank")
    page.goto(f"{viewer.url}#view=segments&r={r}")
    settled(page)
    page.wait_for_selector(".eventlist tr.chosen")
    assert f"All {scenes[r]['events']:,} events" in page.inner_text(".segments")
    at = page.evaluate("() => window.plimsoll.state.at ?? window.plimsoll.page.scenes[window.plimsoll.state.r].peak_position")
    page.focus(".eventlist")
    for key, by in (("ArrowDown", 1), ("ArrowUp", -1)):
        page.keyboard.press(key)
        at += by
        page.wait_for_function("(at) => window.plimsoll.state.at === at && document.querySelector('.eventlist tr.chosen button')?.textContent.replace(/,/g, '') === String(at)", arg=at)
    page.fill("input[aria-label='Find an event']", "segment got")
    page.keyboard.press("Enter")
    page.wait_for_function("() => [...document.querySelectorAll('.segments [role=status]')].some((it) => / of [\\d,]+ event/.test(it.textContent))")
    page.wait_for_function("() => document.querySelector('.eventlist tr.chosen')?.textContent.includes('segment got')")
    assert page.evaluate("() => document.activeElement.getAttribute('aria-label')") == "Find an event"
    # What rounding adds is in the list, in the map and in the tip.
    loss = page.evaluate(f"async () => (await (await fetch('api/map?r={r}&position=peak')).json()).segments.flatMap((it) => it.blocks).reduce((sum, it) => sum + it[1] - it[4], 0)")
    assert loss > 0
    page.get_by_role("button", name="Peak", exact=True).click()
    page.wait_for_function("() => document.querySelector('.segments .lead').textContent.includes('lost to rounding')")


def test_a_tip_has_the_whole_stack(page, every):
    viewer, n = every
    page.goto(f"{viewer.url}#view=timeline&r={n - 2}")
    settled(page)
    box = page.locator(".plot").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.9, box["y"] + box["height"] - 60)
    page.wait_for_selector("#tip .stack li")
    assert page.locator("#tip .stack li").count() >= 1


def test_the_manual_and_the_help_have_the_same_keys(page, every):
    viewer, _ = every
    page.goto(viewer.url)
    settled(page)
    keys = page.evaluate("async () => (await import('./words.js')).KEYS.map((it) => it[0])")
    manual = (FIXTURES.parent / "docs" / "view.md").read_text()
    listed = manual[manual.index("## Mouse and keys") : manual.index("## Follow a run")]
    for name in keys:
        for key in name.replace("…", "").split():
            assert f"`{key}`" in listed or key in "←→", key
