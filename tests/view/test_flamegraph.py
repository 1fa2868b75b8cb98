"""The flame graph of `plimsoll export`, an SVG with a script in it, in a real Chromium."""

import pytest
from viewer import SNAPSHOTS


@pytest.fixture
def picture(page, plimsoll, tmp_path):
    out = tmp_path / "peak.svg"
    ran = plimsoll.run("export", SNAPSHOTS / "seed-mlp-adam-b64.pickle", "--to", "flamegraph", "-o", out)
    assert ran.code == 0, ran
    page.goto(out.as_uri())
    return page


def frames(page):
    return page.evaluate(
        """() => [...document.querySelectorAll("#frames > g")].map((it) => ({
            shown: it.style.display !== "none",
            x: Number(it.querySelector("rect").getAttribute("x")),
            y: Number(it.querySelector("rect").getAttribute("y")),
            width: Number(it.querySelector("rect").getAttribute("width")),
            fill: it.querySelector("rect").getAttribute("fill"),
            label: it.querySelector("title").textContent,
        }))"""
    )


def test_a_click_zooms_in_and_out_again(picture):
    before = frames(picture)
    # The deepest of the narrow ones: most others are beside it.
    chosen = max((it for it in before if 20 < it["width"] < 0.6 * before[0]["width"]), key=lambda it: it["y"])
    index = before.index(chosen)
    picture.locator("#frames > g").nth(index).click()
    after = frames(picture)
    assert after[index]["width"] == pytest.approx(before[0]["width"], rel=0.01)
    for old, new in zip(before, after, strict=True):
        beside = old["x"] + old["width"] <= chosen["x"] + 0.01 or chosen["x"] + chosen["width"] <= old["x"] + 0.01
        assert new["shown"] != beside, old["label"]
        if new["shown"]:
            assert new["x"] + new["width"] <= before[0]["x"] + before[0]["width"] + 0.5
    picture.locator("#reset").click()
    assert [(it["x"], it["width"], it["shown"]) for it in frames(picture)] == [(it["x"], it["width"], True) for it in before]
    assert not picture.locator("#reset").is_visible()


@pytest.mark.parametrize("how", ["click", "key"])
def test_a_search_highlights_what_has_the_word(picture, how):
    before = frames(picture)
    word = "adam"
    picture.on("dialog", lambda it: it.accept(word.upper()))
    if how == "click":
        picture.locator("#search").click()
    else:
        picture.keyboard.press("Control+f")
    after = frames(picture)
    for old, new in zip(before, after, strict=True):
        assert (old["fill"] != new["fill"]) == (word in old["label"].lower()), old["label"]
    assert any(word in it["label"].lower() for it in before)
