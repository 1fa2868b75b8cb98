"""A stranger's five tasks, and every block of the peak alone by mouse and by keys, on recordings that the test makes of programs it has nowhere else."""

import json
import re

import pytest
from harness import Plimsoll
from test_tasks import Clicks
from viewer import settled, viewing

# A tagger whose last text is longer than all before: it runs out in the forward pass.
TAGGER = """
import torch
from torch import nn

class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(5000, 256)
        self.mix = nn.ModuleList(nn.Sequential(nn.LayerNorm(256), nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256)) for _ in range(2))
        self.out = nn.Linear(256, 5000)

    def forward(self, tokens):
        x = self.words(tokens)
        for layer in self.mix:
            x = x + layer(x)
        return self.out(x)

model = Tagger().cuda()
optimizer = torch.optim.AdamW(model.parameters())
for length in (64, 96, 128, 2048):
    tokens = torch.randint(5000, (16, length), device="cuda")
    loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""

# A regression that keeps what it said for a plot, with the graph that it came from.
KEEPER = """
import torch
from torch import nn

net = nn.Sequential(nn.Linear(512, 2048), nn.Tanh(), nn.Linear(2048, 2048), nn.Tanh(), nn.Linear(2048, 8)).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
said = []
for step in range(6):
    x = torch.randn(1024, 512, device="cuda")
    y = net(x)
    said.append(y)
    loss = (y - 1).square().mean()
    loss.backward(retain_graph=True)
    optimizer.step()
    optimizer.zero_grad()
"""

# Windows of a signal through convolutions and a recurrent layer, in micro-batches of two sizes.
SIGNAL = """
import torch
from torch import nn

class Signal(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Sequential(nn.Conv1d(2, 64, 9, stride=2, padding=4), nn.ReLU(), nn.Conv1d(64, 128, 9, stride=2, padding=4), nn.BatchNorm1d(128), nn.ReLU())
        self.over = nn.GRU(128, 192, batch_first=True)
        self.out = nn.Linear(192, 5)

    def forward(self, x):
        x = self.down(x).transpose(1, 2)
        return self.out(self.over(x)[0][:, -1])

model = Signal().cuda()
optimizer = torch.optim.Adam(model.parameters())
for step in range(3):
    for n in (48, 16):
        x = torch.randn(n, 2, 4000, device="cuda")
        loss = nn.functional.cross_entropy(model(x), torch.randint(5, (n,), device="cuda"))
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""

PROGRAMS = {"tagger": (TAGGER, ["--gpu", "rtx4060-8g", "--memory", "1GiB"]), "keeper": (KEEPER, ["--gpu", "rtx4060-8g"]), "signal": (SIGNAL, ["--gpu", "rtx4060-8g"])}
NAMES = list(PROGRAMS)


@pytest.fixture(scope="module")
def strangers(tmp_path_factory, cache):
    plimsoll = Plimsoll(tmp_path_factory.mktemp("strangers"), cache)
    files = []
    for name, (text, options) in PROGRAMS.items():
        files.append(plimsoll.folder / f"{name}.zip")
        plimsoll.run("predict", *options, "--until-exit", "--record", files[-1], plimsoll.script(text, f"{name}.py"))
        assert files[-1].exists(), name
    with viewing(*files) as viewer:
        viewer.reports = [json.loads(plimsoll.run("explain", it, "--json", "-").stdout) for it in files]
        yield viewer


@pytest.mark.matrix(1)
@pytest.mark.parametrize("r", range(3), ids=NAMES)
def test_five_tasks_in_two_clicks_each(page, strangers, r):
    report = strangers.reports[r]
    scene = None

    # Why did it end, or what is the matter? No click: it opens on that.
    stranger = Clicks(page, strangers.url, r)
    if report["cause"]:
        assert report["cause"]["text"].lower().rstrip(".") in page.inner_text(".headline h2").lower()
    scene = page.evaluate("(r) => window.plimsoll.page.scenes[r]", r)

    # Who holds the peak? The first line, and what it holds there.
    page.locator(".answer .code button").first.click()
    page.wait_for_selector("#found .sum")
    moment = page.evaluate("async (r) => (await fetch(`api/moment?r=${r}&position=peak`)).json()", r)
    assert int(re.sub(r"\D", "", page.locator("#found .sum b").get_attribute("title"))) == moment["rows"][0]["bytes"]

    # Which leak? Only the keeper has one; its finding lights what stays.
    stranger = Clicks(page, strangers.url, r)
    grows = "GROWS" in page.inner_text(".headline h2").upper() or "LEAK" in page.inner_text(".headline h2").upper()
    assert grows == (NAMES[r] == "keeper")
    if grows:
        stranger.click(re.compile("Show th(ese|is)"))
        page.wait_for_selector("#found .sum")
        assert re.match(r"[1-9][\d,]* block", page.inner_text("#found h2"))

    # Why is it fragmented?
    stranger = Clicks(page, strangers.url, r)
    stranger.click(re.compile("Fragmentation"))
    said = page.inner_text("main")
    assert "free in" in said and "hole" in said and "the largest" in said

    # The first step against a later one: what stays after each.
    stranger = Clicks(page, strangers.url, r)
    stranger.click(re.compile("Compare the first step with the last"))
    page.wait_for_selector(".difference h2")
    steps = page.evaluate("async (r) => (await fetch(`api/marks?r=${r}`)).json()", r)["steps"]
    ended = [it["step"] for it in steps if it["after"] is not None]
    assert page.inner_text(".difference h2").startswith(f"From after step {ended[0]} to after step {ended[-1]}: ")

    # Which setting or card changes it?
    stranger = Clicks(page, strangers.url, r)
    stranger.click(re.compile("What if: another card"))
    page.wait_for_selector(".result table")
    assert bool(scene["refusals"]) == (NAMES[r] == "tagger")


# Draws a block alone, forgets that it was pinned, and says where it is once that is seen: not where the last click was, since two
# clicks at one place are a double click.
ALONE = """async ([life, moment, lastX]) => {
    const { page, set } = window.plimsoll;
    const { view } = page;
    await view.reach(life, moment);
    set({ pin: null });
    for (let i = 0; i < 300; i++) {
        await new Promise((done) => requestAnimationFrame(done));
        if (!document.querySelector("#side").hidden || view.isAsking || view.isDue || view.data !== view.picture.data || !view.suits(view.data, view.wanted())) continue;
        const box = view.picture.boxOf(life);
        if (!box) continue;
        const place = view.canvas.getBoundingClientRect();
        let [x, y] = box.inside;
        for (let at = box.x0; at < box.x1 && Math.abs(place.x + x / view.ratio - lastX) < 20; at++) if (view.picture.at(at, y)?.life === life) x = at;
        if (Math.abs(place.x + x / view.ratio - lastX) < 20) await new Promise((done) => setTimeout(done, 600));
        return { x: place.x + (x + 0.5) / view.ratio, y: place.y + (y + 0.5) / view.ratio, height: (box.y1 - box.y0) / view.ratio };
    }
    return null;
}"""

LAYERS = """async () => {
    const { state, page, asking } = window.plimsoll;
    const { layers } = await asking.ask("layers", { r: state.r, position: page.scenes[state.r].peak_position, by: state.by });
    return layers.map((it) => it[0]).filter((it) => it !== null);
}"""


@pytest.mark.soak
@pytest.mark.parametrize("r", [pytest.param(it, marks=[pytest.mark.soak] * (it < 2), id=NAMES[it]) for it in range(3)])
def test_every_block_of_the_peak_is_drawn_alone_and_picked_by_mouse_and_by_keys(page, strangers, r):
    page.goto(f"{strangers.url}#view=timeline&r={r}")
    settled(page)
    lives = page.evaluate(LAYERS)
    assert 10 < len(lives)
    moment = page.evaluate("() => window.plimsoll.page.scenes[window.plimsoll.state.r].peak_position")
    last = 0
    for life in lives:
        place = page.evaluate(ALONE, [life, moment, last])
        assert place, f"block {life} is not drawn"
        assert 6 <= place["height"], (life, place)
        last = place["x"]
        page.mouse.click(place["x"], place["y"])
        page.wait_for_function("(life) => window.plimsoll.state.pin === life", arg=life)
    # From the top to the bottom by the key, each press a block.
    page.evaluate("() => window.plimsoll.set({ pin: null, from: null, to: null, low: null, top: null })")
    page.keyboard.press("p")
    page.wait_for_function("(at) => window.plimsoll.state.at === at", arg=moment)
    for life in reversed(lives):
        page.keyboard.press("j")
        page.wait_for_function("(life) => window.plimsoll.state.pin === life", arg=life)
