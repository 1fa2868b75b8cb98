"""A page in one file has all of the recording: it answers as the server does, and is small."""

import json
import lzma
import pickle
import random
import subprocess
import sys
import zipfile
from urllib.parse import urlencode

import pytest
from harness import ROOT
from viewer import FIXTURES, SNAPSHOTS, settled, viewing, zipped

FILES = ["oom-gpt2-b32-cap12", "lstm-adam-b32-s128", "seed-mlp-adam-b64"]


def renamed(folder):
    """The recording of `train`, whose script has another name, other lines and another name for its function."""
    path = folder / "renamed.zip"

    def walk(it):
        if isinstance(it, list):
            return [walk(value) for value in it]
        if not isinstance(it, dict):
            return it
        res = {key: walk(value) for key, value in it.items()}
        if str(res.get("filename", "")).endswith("train.py"):
            res.update(filename="/elsewhere/run.py", line=res["line"] + 40, name="fit" if res["name"] == "main" else res["name"])
        return res

    with zipfile.ZipFile(zipped("train", folder)) as old, zipfile.ZipFile(path, "w") as new:
        for member in old.namelist():
            content = old.read(member)
            new.writestr(member, pickle.dumps(walk(pickle.loads(content))) if member.endswith(".pickle") else content)
    return path


def small(folder):
    return [SNAPSHOTS / "mempool.pickle", zipped("train", folder), renamed(folder)], 130


def test_lines_of_a_script_with_other_names_are_paired(page, tmp_path):
    with viewing(zipped("train", tmp_path), renamed(tmp_path)) as viewer:
        page.goto(viewer.url)
        settled(page)
        rows = page.evaluate("async () => (await fetch('api/changes?r=0&position=peak&other=1&with=peak')).json()")["rows"]
        page.goto("about:blank")
    paired = [it for it in rows if it["renamed"]]
    assert len(paired) > 8
    assert all(it["before"] == it["after"] and it["renamed"][1] == it["line"][1] + 40 for it in paired)
    # Two lines of one function make inputs: of two that fit neither is it.
    assert {it["category"] for it in rows if it["before"] != it["after"]} == {"inputs"}


def all_of_them(folder):
    ranks = [FIXTURES / "distributed" / f"ddp.rank{it}.pickle.xz" for it in (0, 1)]
    return [*(SNAPSHOTS / f"{it}.pickle" for it in FILES), *ranks], 300


def questions(overview):
    """What a page may ask of each recording."""
    dice = random.Random(7)
    for r, scene in enumerate(overview["scenes"]):
        last = scene["events"]
        moments = [0, 1, last, scene["peak_position"], *(dice.randrange(last + 1) for _ in range(2))]
        for position in moments:
            yield "moment", {"r": r, "position": position}
            yield "map", {"r": r, "position": position}
            for by in ("category", "line", "pool"):
                yield "layers", {"r": r, "position": position, "by": by}
        for life in {0, scene["lives"] - 1, *(dice.randrange(scene["lives"]) for _ in range(5))}:
            yield "block", {"r": r, "life": life}
        yield "events", {"r": r, "from": 1, "n": 60}
        yield "events", {"r": r, "from": max(1, last - 40), "n": 60}
        for words in ("alloc", "segment", "512", "nowhere"):
            yield "find-event", {"r": r, "words": words, "from": last // 2, "back": "0"}
            yield "find-event", {"r": r, "words": words, "from": last // 2, "back": "1"}
        for weigh in ("made", "held"):
            yield "stretch", {"r": r, "from": last // 3, "to": last, "weigh": weigh}
        for of in ["words:weight", "words:>1MiB", "words:512KiB", "words:ACTIV", "words:0x7f0000000000", "words:.py:1", "words:1", "words:1 MB", "words:>1", "words:peak", "words:weight .py", "owner:0", "owner:1:3", "category:1", "module:no module", "stacks:1", "stacks:0,5", "lives:1,2,3", "finding:0"]:
            yield "select", {"r": r, "of": of, "position": scene["peak_position"]}
            yield "select", {"r": r, "of": of, "position": last // 2}
        for axis in ("events", "time"):
            end = last + 1 if axis == "events" else scene["micros"] + 1
            for start, stop, columns, least, by in [(0, end, 300, 1 << 16, "category"), (end // 3, end // 3 + 60, 200, 1, "line"), (0, end, 800, 1 << 60, "category"), (end // 2, end, 77, 4096, "pool")]:
                window = {"r": r, "axis": axis, "from": start, "to": stop, "columns": columns, "least": least, "by": by}
                yield "window", window
                yield "holes", window
        other = (r + 1) % len(overview["scenes"])
        yield "changes", {"r": r, "position": "peak", "other": other, "with": "peak"}
        yield "changes", {"r": r, "position": last // 2, "other": r, "with": last}


ASK = """async (all) => {
    const { ask, askWindow } = window.plimsoll.asking;
    const told = async ([name, params]) => {
        if (name !== "window") return ask(name, params);
        const { failed, ...it } = await askWindow(params);
        return Object.fromEntries(Object.entries(it).map(([key, value]) => [key, ArrayBuffer.isView(value) ? [...value] : value]));
    };
    const res = [];
    for (const it of all) res.push(await told(it).catch((error) => ({ error: error.message })));
    return res;
}"""


@pytest.mark.soak
@pytest.mark.parametrize("recordings", [small, all_of_them])
def test_it_answers_as_the_server_does(page, plimsoll, recordings, tmp_path):
    files, least = recordings(tmp_path)
    out = tmp_path / "page.html"
    ran = plimsoll.run("view", *files, "--html", out)
    assert (ran.code, ran.stdout) == (0, ""), ran
    with viewing(*files) as viewer:
        page.goto(viewer.url)
        settled(page)
        asked = list(questions(page.evaluate("() => ({ scenes: window.plimsoll.page.scenes })")))
        served = page.evaluate(ASK, asked)
    page.goto(out.as_uri())
    settled(page)
    found = 0
    for (name, params), answer, carried in zip(asked, served, page.evaluate(ASK, asked), strict=True):
        if params.get("axis") == "time" and "n" in answer and not answer["n"]:
            assert not carried["n"]
            continue
        assert carried == answer, f"{name}?{urlencode(params)}"
        found += "error" not in answer
    assert least < found, "most of what was asked has an answer"
    # A finding without blocks is refused by the server, and the browser notes it.
    page.problems[:] = [it for it in page.problems if "400" not in it]


def test_what_ifs_were_made_beforehand(page, plimsoll, tmp_path):
    out = tmp_path / "page.html"
    plimsoll.run("view", SNAPSHOTS / "oom-gpt2-b32-cap12.pickle", "--html", out)
    page.goto(out.as_uri() + "#view=whatif")
    settled(page)
    assert "The requests up to the failed one are served" in page.inner_text(".result")
    for setting in ("default", "expandable_segments:True", "max_split_size_mb:128"):
        page.select_option(".form select >> nth=1", setting)
        page.wait_for_function("() => /The requests up to the failed one are served/.test(document.querySelector('.result').textContent)")
    page.select_option(".form select >> nth=1", "")
    cards = page.evaluate("() => window.plimsoll.page.cards.map((it) => [it.id, it.total - it.context])")
    small = next(it for it, total in cards if total < 8 << 30)
    page.select_option(".form select >> nth=0", small)
    page.wait_for_function("() => /run out of memory/.test(document.querySelector('.result').textContent)")
    page.select_option(".form select >> nth=0", "own")
    page.fill(".form input >> nth=0", "1GiB")
    page.keyboard.press("Enter")
    page.wait_for_function("() => /plimsoll replay/.test(document.querySelector('.result').textContent)")


def test_it_shows_the_moment_that_was_asked_for_and_searches_and_compares(page, plimsoll, tmp_path):
    out = tmp_path / "page.html"
    plimsoll.run("view", SNAPSHOTS / "lstm-adam-b32-s128.pickle", SNAPSHOTS / "seed-mlp-adam-b64.pickle", "--html", out)
    page.goto(out.as_uri() + "#view=peak&at=123")
    settled(page)
    assert page.input_value("input[aria-label=Event]") == "123"
    page.fill("#words", ">1KiB")
    page.keyboard.press("Enter")
    page.wait_for_selector("#found .hits button")
    page.goto(out.as_uri() + "#view=ranks")
    page.wait_for_selector(".ranks .list >> nth=1")
    assert "allocated at the peak of" in page.inner_text("main")


def test_it_is_small(page, plimsoll, tmp_path):
    out = tmp_path / "page.html"
    plimsoll.run("view", SNAPSHOTS / "mempool.pickle", "--html", out)
    assert out.stat().st_size < 105_000, "what each page has: code, style, the catalogue of cards"
    rank = FIXTURES / "distributed" / "ddp.rank0.pickle.xz"
    plimsoll.run("view", rank, "--html", out, "--force")
    assert out.stat().st_size <= 0.15 * len(lzma.decompress(rank.read_bytes()))
    page.goto(out.as_uri() + "#view=timeline")
    settled(page)
    assert page.evaluate("() => getComputedStyle(document.querySelector('#top')).display") == "flex"


@pytest.mark.soak
def test_it_is_at_most_15_percent_of_the_pickle(page, plimsoll, tmp_path):
    large = tmp_path / "large.pickle"
    subprocess.run([sys.executable, ROOT / "bench" / "instruments" / "generate.py", "200000", large], check=True)
    out = tmp_path / "page.html"
    ran = plimsoll.run("view", large, "--html", out)
    assert ran.code == 0, ran
    assert out.stat().st_size <= 0.15 * large.stat().st_size, json.dumps([out.stat().st_size, large.stat().st_size])
    page.goto(out.as_uri() + "#view=timeline")
    settled(page)
    data = page.evaluate("() => { const { lives, k, summed, between } = window.plimsoll.page.view.data; return { lives, k, summed, between }; }")
    assert data["k"] + data["summed"] + data["between"] == data["lives"]
