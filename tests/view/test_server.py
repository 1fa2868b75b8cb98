"""What the viewer's server answers, and to whom. No browser."""

import http.client
import json
import os
import socket
import subprocess
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from harness import binary, clean_environment
from viewer import SNAPSHOTS, Viewer, viewing

SNAPSHOT = SNAPSHOTS / "seed-mlp-adam-b64.pickle"


@pytest.fixture(scope="module")
def server():
    with viewing(SNAPSHOT) as viewer:
        yield viewer


def ask(viewer, path="", method="GET", body=None, **headers):
    """Status, headers and text of what `path` below the token answers."""
    url = urlsplit(viewer.url)
    connection = http.client.HTTPConnection(url.hostname, url.port, timeout=30)
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.putrequest(method, path if path.startswith("/") else url.path + path, skip_host="Host" in headers)
    for name, value in headers.items():
        connection.putheader(name, value)
    connection.endheaders(body)
    response = connection.getresponse()
    answer = response.status, response.headers, response.read()
    connection.close()
    return answer


def test_the_page_comes_with_a_policy_that_lets_it_talk_to_nobody_else(server):
    status, headers, body = ask(server)
    assert status == 200
    assert b"<title>plimsoll</title>" in body
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    assert headers["Referrer-Policy"] == "no-referrer"


@pytest.mark.parametrize("path", ["/", "/0123456789abcdef0123456789abcdef/", "//", "/api/overview", "/..", "/%2e%2e/"])
def test_who_does_not_know_the_address_gets_nothing(server, path):
    status, _, body = ask(server, path)
    assert status == 403
    assert b"plimsoll view" in body
    assert b"events" not in body


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "localhost.evil.example:80"])
def test_another_name_for_this_machine_is_refused(server, host):
    assert ask(server, "api/overview", Host=host)[0] == 403


def test_a_forwarded_port_is_answered(server):
    assert ask(server, "api/overview", Host="localhost:9999")[0] == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "null"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
    ],
)
def test_another_page_is_refused(server, headers):
    assert ask(server, "api/overview", **headers)[0] == 403


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"])
def test_nothing_can_be_changed(server, method):
    assert ask(server, "api/overview", method)[0] == 405


@pytest.mark.parametrize(
    "path", ["../Cargo.toml", "..%2f..%2fetc%2fpasswd", "web/main.js", "main.js/..", "....//etc/passwd", "api/../api/overview", "api/overview/", "%00", "style.css%00"]
)
def test_there_is_no_path_to_elsewhere(server, path):
    status, _, body = ask(server, path)
    assert status == 404
    assert b"root:" not in body


@pytest.mark.parametrize(
    "path",
    [
        "api/moment?r=9&position=0",
        "api/moment?r=0&position=99999999",
        "api/moment?r=0&position=-1",
        "api/moment?r=0",
        "api/block?r=0&life=4000000000",
        "api/block?r=0&life=x",
        "api/window?r=0&axis=events&from=0&to=10&columns=x&least=0&by=category",
        "api/what-if?r=0&columns=10&conf=no_such_setting:1",
        "api/what-if?r=0&columns=10&capacity=lots",
    ],
)
def test_what_makes_no_sense_is_answered_with_a_sentence(server, path):
    status, _, body = ask(server, path)
    assert status == 400
    assert json.loads(body)["error"]


@pytest.mark.parametrize(
    "window",
    [
        "from=0&to=18446744073709551615&columns=4294967295&least=0",
        "from=18446744073709551615&to=0&columns=1&least=18446744073709551615",
        "from=5&to=5&columns=0&least=1",
        "from=9&to=3&columns=7&least=7",
    ],
)
@pytest.mark.parametrize("axis", ["events", "time"])
def test_odd_windows_are_windows(server, window, axis):
    status, _, body = ask(server, f"api/window?r=0&axis={axis}&by=line&{window}")
    assert status == 200
    assert 32 <= len(body)


@pytest.mark.parametrize("garbage", [b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"GET / HTTP/9.9\r\n\r\n", b"GET " + b"a" * 40_000, b"\r\n\r\n"])
def test_what_is_no_http_ends_that_connection_and_no_other(server, garbage):
    url = urlsplit(server.url)
    with socket.create_connection((url.hostname, url.port), timeout=30) as connection:
        try:
            connection.sendall(garbage)
            connection.shutdown(socket.SHUT_WR)
            answer = connection.recv(100)
        except OSError:
            # It was ended before all of it was said.
            answer = b""
        assert b"200 OK" not in answer
    assert ask(server)[0] == 200


def test_thirty_connections_that_stay_open_do_not_stop_others(server):
    url = urlsplit(server.url)
    open_ones = [socket.create_connection((url.hostname, url.port)) for _ in range(30)]
    assert ask(server)[0] == 200
    for it in open_ones:
        it.close()


def test_ctrl_c_ends_it_and_the_address_is_the_only_output():
    viewer = Viewer(SNAPSHOT)
    assert viewer.url.startswith("http://127.0.0.1:")
    assert ask(viewer)[0] == 200
    assert viewer.end() == 0
    assert viewer.rest == ("", "")


def test_a_port_that_is_taken_is_said(server, plimsoll):
    port = urlsplit(server.url).port
    ran = plimsoll.run("view", SNAPSHOT, "--no-open", "--port", port)
    ran.assert_sentence("port", str(port), "--port")


def test_two_viewers_know_nothing_of_each_other_and_one_that_is_killed_leaves_nothing(tmp_path):
    environment = clean_environment() | dict.fromkeys(("HOME", "TMPDIR", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR", "PLIMSOLL_CACHE"), str(tmp_path))
    first, second = (Viewer(SNAPSHOT, environment=environment) for _ in range(2))
    here, there = urlsplit(first.url), urlsplit(second.url)
    assert here.port != there.port and here.path != there.path
    assert ask(first)[0] == ask(second)[0] == 200
    # The secret of one is none of the other.
    assert ask(first, there.path)[0] == ask(second, here.path)[0] == 403
    first.process.kill()
    first.process.wait()
    assert ask(second, "api/overview")[0] == 200 and list(tmp_path.iterdir()) == []
    # Its port is free at once.
    again = Viewer(SNAPSHOT, options=("--port", str(here.port)), environment=environment)
    assert urlsplit(again.url).port == here.port and ask(again)[0] == 200
    assert again.end() == second.end() == 0


def test_a_file_that_vanishes_was_read(tmp_path):
    path = tmp_path / "gone.pickle"
    path.write_bytes(SNAPSHOT.read_bytes())
    with viewing(path) as viewer:
        path.unlink()
        assert ask(viewer, "api/moment?r=0&position=peak")[0] == 200


def test_what_cannot_be_shown_is_said(plimsoll, tmp_path):
    log = tmp_path / "train.log"
    log.write_text("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n")
    plimsoll.run("view", log, "--no-open").assert_sentence("train.log", "plimsoll explain")
    plimsoll.run("view", tmp_path / "missing.pickle", "--no-open").assert_sentence("missing.pickle")


def test_without_display_it_says_how_to_get_there(monkeypatch):
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    viewer = Viewer(SNAPSHOT, options=["--port", "0"], opens=True)
    viewer.end()
    port = str(urlsplit(viewer.url).port)
    assert "ssh -N -L" in viewer.rest[1]
    assert port in viewer.rest[1]


def test_the_numbers_are_those_of_explain_to_the_byte(plimsoll):
    for snapshot in sorted(SNAPSHOTS.glob("*.pickle")):
        explained = json.loads(plimsoll.run("explain", snapshot, "--json", "-").stdout)
        with viewing(snapshot) as viewer:
            overview = json.loads(ask(viewer, "api/overview")[2])
            told = json.loads(ask(viewer, "api/analysis")[2])["explanations"]
            largest = max(overview["scenes"], key=lambda it: it["peak_allocated"])
            index = overview["scenes"].index(largest)
            moment = json.loads(ask(viewer, f"api/moment?r={index}&position=peak")[2])
        assert largest["peak_allocated"] == explained["peak_allocated_bytes"], snapshot
        assert largest["peak_reserved"] == explained["peak_reserved_bytes"], snapshot
        assert moment["allocated"] == explained["peak_allocated_bytes"], snapshot
        assert sum(bytes for bytes, _ in moment["categories"]) == moment["allocated"], snapshot
        explained.pop("version")
        assert told == [explained], snapshot


@pytest.mark.parametrize("command", [["explain", SNAPSHOT, "--open"], ["predict", "--open", "--", "train.py"]])
def test_the_report_comes_first_and_then_the_page(command, plimsoll, monkeypatch):
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    plimsoll.script("import torch\nmodel = torch.nn.Linear(64, 64).cuda()\nmodel(torch.ones(8, 64).cuda()).sum().backward()\n")
    process = plimsoll.start(*command)
    lines = []
    for line in process.stdout:
        lines.append(line)
        if line.startswith("http://127.0.0.1:"):
            break
    url = urlsplit(lines[-1].strip())
    connection = http.client.HTTPConnection(url.hostname, url.port, timeout=30)
    connection.request("GET", url.path + "api/overview")
    assert json.loads(connection.getresponse().read())["scenes"][0]["peak_allocated"]
    process.send_signal(2)
    assert process.wait(timeout=30) == 0
    assert any("MiB" in line or "KiB" in line for line in lines[:-1]), lines
    process.stdout.close()
    process.stderr.close()


@pytest.fixture
def desktop(tmp_path):
    """An environment with a display, whose browser only writes down what it is to open."""
    browser = tmp_path / "bin" / "xdg-open"
    browser.parent.mkdir()
    opened = tmp_path / "opened"
    browser.write_text(f'#!/bin/sh\nprintf "%s\\n" "$*" >> {opened}\n')
    browser.chmod(0o755)
    return {"DISPLAY": ":0", "PATH": f"{browser.parent}:{os.environ['PATH']}"}, opened


def url_of(process):
    for line in process.stdout:
        if line.startswith("http://127.0.0.1:"):
            return line.strip()
    raise AssertionError(process.stderr.read())


def end(process):
    process.send_signal(2)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    return errors


def appears(path):
    """Another process writes it, soon."""
    until = time.monotonic() + 60
    while not path.exists() or not path.read_text():
        assert time.monotonic() < until, path
        time.sleep(0.02)
    return path.read_text()


@pytest.mark.parametrize("command", [["view", SNAPSHOT], ["explain", SNAPSHOT, "--open"], ["predict", "--open", "--", "train.py"]])
def test_with_a_display_the_browser_gets_the_address(command, plimsoll, desktop):
    more, opened = desktop
    plimsoll.script("import torch\ntorch.ones(1 << 20, device='cuda')\n")
    process = plimsoll.start(*command, environment=plimsoll.environment(**more))
    url = url_of(process)
    assert appears(opened).split() == [url]
    assert "ssh" not in end(process)


@pytest.mark.parametrize("command", [["view", SNAPSHOT, "--no-open"], ["explain", SNAPSHOT], ["view", SNAPSHOT, "--html", "page.html"]])
def test_no_browser_is_started_that_nobody_asked_for(command, plimsoll, desktop):
    more, opened = desktop
    process = plimsoll.start(*command, environment=plimsoll.environment(**more))
    if "--no-open" in command:
        url_of(process)
        end(process)
    else:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
    assert not opened.exists()


def test_a_profilers_trace_is_told_apart_from_a_log(plimsoll, tmp_path):
    trace = tmp_path / "trace.json"
    trace.write_text(json.dumps({"schemaVersion": 1, "traceEvents": []}))
    plimsoll.run("view", trace, "--no-open").assert_sentence("trace.json", "profiler", "plimsoll explain", "_record_memory_history")


def test_nothing_is_written_anywhere(tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    places = {name: str(home) for name in ("HOME", "TMPDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR", "PLIMSOLL_CACHE")}
    process = subprocess.Popen(
        [binary(), "view", SNAPSHOT, "--no-open"],
        cwd=home, env=clean_environment() | places, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )
    url = urlsplit(process.stdout.readline().strip())
    for path in ["", "api/overview", "api/analysis", "api/what-if?r=0&columns=10", "api/moment?r=0&position=peak", "api/map?r=0&position=5", "main.js"]:
        connection = http.client.HTTPConnection(url.hostname, url.port, timeout=60)
        connection.request("GET", url.path + path)
        assert connection.getresponse().status == 200, path
        connection.close()
    folder = Path(f"/proc/{process.pid}/fd")
    for fd in folder.iterdir():
        try:
            where = os.readlink(fd)
            flags = int(Path(f"/proc/{process.pid}/fdinfo/{fd.name}").read_text().split("flags:")[1].split()[0], 8)
        except FileNotFoundError:
            # The last connection was closed in the meantime.
            continue
        is_file = where.startswith("/") and not where.startswith("/dev/")
        assert not is_file or flags & os.O_ACCMODE == os.O_RDONLY, where
    process.send_signal(2)
    assert process.wait(timeout=60) == 0
    process.stdout.close()
    assert list(home.iterdir()) == []
