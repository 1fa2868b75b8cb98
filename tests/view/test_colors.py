"""Colours that people with any kind of colour vision tell apart, and words that can be read, in both themes; and a narrow screen."""

import itertools
import math
import pickle

import pytest
from viewer import SNAPSHOTS, settled, viewing

# How colours are seen (Machado, Oliveira and Fernandes 2009), on linear RGB.
VISIONS = {
    "usual": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
CATEGORIES = ["before", "parameters", "buffers", "optimizer", "gradients", "inputs", "kept", "unknown", "activations", "workspaces", "temporaries"]
GROUNDS = ["ground", "plot", "raised", "soft"]
INKS = ["ink", "quiet", "accent", "bad", "good", "card", "note"]


def linear(color):
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    return [it / 12.92 if it <= 0.04045 else ((it + 0.055) / 1.055) ** 2.4 for it in parts]


def luminance(color):
    return sum(share * it for share, it in zip((0.2126, 0.7152, 0.0722), linear(color), strict=True))


def contrast(a, b):
    dark, light = sorted([luminance(a), luminance(b)])
    return (light + 0.05) / (dark + 0.05)


def lab(rgb):
    x = (0.4124 * rgb[0] + 0.3576 * rgb[1] + 0.1805 * rgb[2]) / 0.95047
    y = 0.2126 * rgb[0] + 0.7152 * rgb[1] + 0.0722 * rgb[2]
    z = (0.0193 * rgb[0] + 0.1192 * rgb[1] + 0.9505 * rgb[2]) / 1.08883
    x, y, z = (it ** (1 / 3) if 0.008856 < it else 7.787 * it + 16 / 116 for it in (x, y, z))
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def seen(color, vision):
    rgb = linear(color)
    return lab([min(1, max(0, sum(it * part for it, part in zip(row, rgb, strict=True)))) for row in vision])


def grey(color):
    return lab([luminance(color)] * 3)[0]


@pytest.fixture
def opened(page, viewer):
    page.goto(viewer.url)
    settled(page)
    return page


@pytest.mark.matrix(1)
@pytest.mark.parametrize("vision", VISIONS)
def test_categories_are_told_apart(opened, vision):
    colors = opened.evaluate("async (keys) => { const { categoryColor } = await import('./palette.js'); return keys.map(categoryColor); }", CATEGORIES)
    known = dict(zip(CATEGORIES, colors, strict=True))
    for a, b in itertools.combinations(CATEGORIES, 2):
        difference = math.dist(seen(known[a], VISIONS[vision]), seen(known[b], VISIONS[vision]))
        assert 20 <= difference, (a, b, difference)


def test_in_grey_what_is_hatched_alike_differs_in_lightness(opened):
    told = opened.evaluate("async (keys) => { const { categoryColor, hatchingOf } = await import('./palette.js'); return keys.map((it) => [it, hatchingOf(it), categoryColor(it)]); }", [*CATEGORIES, "pending"])
    for (a, hatching, one), (b, other, two) in itertools.combinations(told, 2):
        assert hatching != other or 15 <= abs(grey(one) - grey(two)), (a, b, hatching)


@pytest.mark.matrix(1)
@pytest.mark.parametrize("vision", VISIONS)
def test_phases_are_told_apart(opened, vision):
    phases = opened.evaluate("async () => (await import('./palette.js')).PHASE")
    for a, b in itertools.combinations(phases, 2):
        assert 15 <= math.dist(seen(phases[a], VISIONS[vision]), seen(phases[b], VISIONS[vision])), (a, b)
        assert 12 <= abs(grey(phases[a]) - grey(phases[b])), (a, b)


def test_hatchings_are_drawn(opened, viewer):
    """Two pixels of a block of a hatched category differ; those of one without do not."""
    opened.goto("about:blank")
    opened.goto(f"{viewer.url}#view=timeline&r=2")
    settled(opened)
    shades = opened.evaluate(
        """async () => {
            const { hatchingOf } = await import('./palette.js');
            const { view, scenes } = window.plimsoll.page;
            const { picture, canvas } = view;
            const groups = scenes[2].groups.category;
            const shades = new Map();
            const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
            const pixels = new Uint32Array(data.buffer);
            for (let at = 0; at < pixels.length; at++) {
                const { life, group } = picture.at(at % picture.width, Math.floor(at / picture.width));
                // Not the edges of blocks, nor the seams of bands.
                const mark = picture.what[at];
                if (life === undefined || mark % 2 === 0 || 2 * (picture.data.k + picture.data.groups) < mark) continue;
                if (!shades.has(life)) shades.set(life, [hatchingOf(groups[group].key) !== "", new Set(), 0]);
                shades.get(life)[1].add(pixels[at]);
                shades.get(life)[2]++;
            }
            return [...shades.values()].filter((it) => 400 < it[2]).map(([isHatched, all]) => [isHatched, all.size]);
        }"""
    )
    assert {it for it, _ in shades} == {True, False}
    assert all(n == (2 if is_hatched else 1) for is_hatched, n in shades), shades


def test_who_sees_no_colours_sees_where_a_band_begins(opened, viewer):
    """Eleven greys cannot all differ without their hatchings: each band has a seam to what lies below it, black or white, whichever stands out from the band."""
    # From another page: within this one the address changes before the view does.
    opened.goto("about:blank")
    opened.goto(f"{viewer.url}#view=timeline&r=2")
    for by in ("category", "line", "pool"):
        opened.evaluate("(by) => window.plimsoll.set({ by })", by)
        settled(opened)
        bands = opened.evaluate("async () => { const { colorOf, inkOn } = await import('./palette.js'); const { page, state } = window.plimsoll; return page.scenes[2].groups[state.by].map((it, index) => { const color = colorOf(it, index); return [color, inkOn(color)]; }); }")
        for band, seam in bands:
            assert 4.5 <= contrast(band, seam), (by, band)
        seamless, seams = opened.evaluate(
            """() => {
                const { picture } = window.plimsoll.page.view;
                const { width, height, what, data } = picture;
                const isSeam = (y, x) => 2 * (data.k + data.groups) < what[y * width + x];
                let [seamless, seams] = [0, 0];
                for (let x = 0; x < width; x += 7) {
                    let run = 0;
                    for (let y = 1; y < height; y++) {
                        const [above, here] = [picture.at(x, y - 1), picture.at(x, y)];
                        run = here.group === above.group ? run + 1 : 1;
                        const below = y + 1 < height ? picture.at(x, y + 1) : {};
                        // The lowest row of a band that is high enough, above another.
                        if (here.group === undefined || below.group === undefined || below.group === here.group || run < 5) continue;
                        if (isSeam(y, x)) seams++; else seamless++;
                    }
                }
                return [seamless, seams];
            }"""
        )
        assert seamless == 0, by
        assert seams or by == "pool", by


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_words_can_be_read(opened, theme):
    opened.emulate_media(color_scheme=theme)
    names = [*GROUNDS, *INKS]
    told = opened.evaluate("(names) => names.map((it) => getComputedStyle(document.documentElement).getPropertyValue(`--${it}`).trim())", names)
    colors = dict(zip(names, told, strict=True))
    for ink in INKS:
        for ground in GROUNDS:
            assert 4.5 <= contrast(colors[ink], colors[ground]), (ink, ground, contrast(colors[ink], colors[ground]))
    # Words on bands and in the flame graph, and blocks beside nothing.
    bands = opened.evaluate("async (keys) => { const { categoryColor, inkOn } = await import('./palette.js'); return keys.map((it) => [categoryColor(it), inkOn(categoryColor(it))]); }", CATEGORIES)
    for band, ink in bands:
        assert 4.5 <= contrast(band, ink), band
        assert 1.5 <= contrast(band, colors["plot"]), band


@pytest.mark.matrix(3)
@pytest.mark.parametrize("view", ["answer", "timeline", "peak", "segments", "growth", "whatif", "ranks"])
def test_a_narrow_screen_has_all_of_it(page, viewer, view):
    page.set_viewport_size({"width": 390, "height": 844})
    for r in (1, 4):
        page.goto("about:blank")
        page.goto(f"{viewer.url}#view={view}&r={r}&pin=2")
        settled(page)
        page.wait_for_timeout(100)
        assert page.evaluate("() => document.documentElement.scrollWidth") <= 390, view
        for name in ("#tabs", "#search", "main section"):
            assert page.locator(name).is_visible()


@pytest.mark.soak
def test_long_names_and_missing_segments_do_not_stretch_the_page(page, tmp_path):
    snapshot = pickle.loads((SNAPSHOTS / "seed-mlp-adam-b64.pickle").read_bytes())

    def longer(it):
        if isinstance(it, dict):
            return {key: value[:-3] + "x" * 3000 + ".py" if key == "filename" else value + "y" * 3000 if key == "name" and isinstance(value, str) else longer(value) for key, value in it.items()}
        return [longer(value) for value in it] if isinstance(it, list) else it

    long = tmp_path / f"{'n' * 150}.pickle"
    long.write_bytes(pickle.dumps(longer(snapshot)))
    bare = tmp_path / "bare.pickle"
    traces = [[it for it in trace if not it["action"].startswith("segment")] for trace in snapshot["device_traces"]]
    bare.write_bytes(pickle.dumps({**snapshot, "device_traces": traces, "segments": []}))
    with viewing(long, bare) as viewer:
        for width, views in ((1280, ("answer", "ranks")), (390, ("answer", "peak", "segments", "ranks"))):
            page.set_viewport_size({"width": width, "height": 800})
            for view, r in itertools.product(views, (0, 1)):
                page.goto("about:blank")
                page.goto(f"{viewer.url}#view={view}&r={r}&pin=3&sel=words:x")
                settled(page)
                page.wait_for_timeout(80)
                wide, tall = page.evaluate("() => [document.documentElement.scrollWidth, document.documentElement.scrollHeight]")
                assert wide <= width, (view, r, wide)
                assert tall < 12_000, (view, r, tall)
