"""`plimsoll exporter`: who may read, in which format, and a real Prometheus that scrapes it."""

import contextlib
import json
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request

import pytest
from harness import ROOT, binary
from scene import GIB, busy

BOARD = ROOT / "docs" / "grafana-board.json"
OPEN_METRICS = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
TOKEN = "0123456789abcdef-token"


@contextlib.contextmanager
def exporter(machine, *options, listen="127.0.0.1:0"):
    """The address at which it serves; afterwards it has ended as it should."""
    process = subprocess.Popen(
        [binary(), "exporter", "--listen", listen, *options], env=machine.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process.stdout.readline().strip()
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0


def get(url, **headers):
    """Status, headers and text."""
    request = urllib.request.Request(url, headers={key.replace("_", "-"): it for key, it in headers.items()})
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return answer.status, dict(answer.headers), answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, dict(error.headers), error.read().decode()


def values(text, name):
    """The numbers of one metric, by their labels as written."""
    lines = [line for line in text.splitlines() if line.startswith((name + "{", name + " "))]
    return {line[len(name) : line.rindex(" ")]: float(line.rpartition(" ")[2]) for line in lines}


def test_what_is_served_is_what_top_shows(machine):
    it = machine(2)
    (first, second) = it.uuids(binary())
    alone = it.process({0: 3 * GIB})
    watched = it.process({1: 20 * GIB})
    counters = it.counters(second, 12 * GIB, 15 * GIB, growth_per_step=1 << 30, retries=2, categories={"parameters": 4 * GIB})
    alarms = [{"code": "watch/growth", "step": it, "text": "grows"} for it in (3, 4)]
    it.status(watched, devices=[counters], label='a "b"\n\x1b[31m\u202e\\c', rank=3, alarms=alarms, command=["python", "--token=secret"])
    with exporter(it) as url:
        status, headers, text = get(url)
        assert (status, headers["Content-Type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
        _, headers, other = get(url, Accept=OPEN_METRICS)
        assert headers["Content-Type"] == "application/openmetrics-text; version=1.0.0; charset=utf-8"
        assert other.endswith("# EOF\n") and "# TYPE plimsoll_allocator_retries counter" in other
        assert get(url.replace("/metrics", "/"))[0] == 200 and get(url + "x")[0] == 404
        assert get(url, Host="evil.example")[0] == 403
    assert "secret" not in text
    assert values(text, "plimsoll_nvml_up") == {"": 1}
    # With what the firmware has of an H100, which no process holds.
    assert list(values(text, "plimsoll_device_memory_used_bytes").values()) == [it * GIB + (480 << 20) for it in (3, 20)]
    device = f'gpu="1",uuid="{second}"'
    process = rf'pid="{watched}",user="root",process="a \"b\"\\n\\x1b[31m\\u{{202e}}\\c",rank="3"'.replace("root", subprocess.getoutput("id -un"))
    assert values(text, "plimsoll_allocator_reserved_bytes") == {f"{{{process},{device}}}": 15 * GIB}
    assert values(text, "plimsoll_allocator_retries_total") == {f"{{{process},{device}}}": 2}
    assert values(text, "plimsoll_allocator_category_bytes") == {f'{{{process},{device},category="parameters"}}': 4 * GIB}
    assert values(text, "plimsoll_process_alarms") == {f'{{{process},code="watch/growth"}}': 2}
    held = values(text, "plimsoll_process_held_bytes")
    assert sorted(held.values()) == [3 * GIB, 20 * GIB] and any(f'pid="{alone}"' in it and f'uuid="{first}"' in it for it in held)


def test_elsewhere_only_who_has_the_token_may_read(machine, tmp_path):
    it = machine(0)
    ran = subprocess.run([binary(), "exporter", "--listen", "0.0.0.0:0"], env=it.environment(), capture_output=True, text=True)
    assert ran.returncode == 2 and "give a secret with --token-file" in ran.stderr
    secret = tmp_path / "token"
    secret.write_text(TOKEN + "\n")
    with exporter(it, "--token-file", str(secret), listen="0.0.0.0:0") as url:
        url = url.replace("0.0.0.0", "127.0.0.1")
        status, headers, text = get(url)
        assert (status, headers["WWW-Authenticate"]) == (401, "Bearer") and "plimsoll_" not in text
        assert get(url, Authorization="Bearer " + TOKEN[:-1])[0] == 401
        assert get(url, Authorization="Basic " + TOKEN)[0] == 401
        assert get(url, Authorization="Bearer " + TOKEN, Host="node17:9519")[0] == 200
    secret.write_text("short")
    ran = subprocess.run([binary(), "exporter", "--token-file", str(secret)], env=it.environment(), capture_output=True, text=True)
    assert ran.returncode == 2 and "expected at least 16 letters" in ran.stderr


def test_without_a_gpu_it_serves_what_runs_say(machine):
    it = machine(0)
    it.status(it.process({}), devices=[it.counters(None, GIB, 2 * GIB)])
    with exporter(it) as url:
        text = get(url)[2]
    assert values(text, "plimsoll_nvml_up") == {"": 0}
    assert list(values(text, "plimsoll_allocator_allocated_bytes").values()) == [GIB]


def expressions():
    """What the board asks Prometheus, with its variables filled in."""
    board = json.loads(BOARD.read_text())
    for panel in board["panels"]:
        for target in panel["targets"]:
            expression = target["expr"]
            for name in ("instance", "gpu", "process"):
                expression = expression.replace("$" + name, ".*")
            yield panel["title"], expression


@pytest.mark.skipif(not shutil.which("prometheus") or not shutil.which("promtool"), reason="no Prometheus here (Debian: apt install prometheus)")
def test_a_real_prometheus_scrapes_it_and_answers_the_board(machine, tmp_path):
    it = machine(8)
    busy(it, binary(), 8, 40)
    secret = tmp_path / "token"
    secret.write_text(TOKEN)
    with exporter(it, "--token-file", str(secret)) as url:
        text = get(url, Authorization="Bearer " + TOKEN)[2]
        checked = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True)
        assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = "127.0.0.1:%d" % free.getsockname()[1]
        conf = tmp_path / "prometheus.yml"
        conf.write_text(json.dumps({"scrape_configs": [{
            "job_name": "plimsoll", "scrape_interval": "1s", "static_configs": [{"targets": [urllib.parse.urlparse(url).netloc]}],
            "authorization": {"credentials_file": str(secret)},
        }]}))
        prometheus = subprocess.Popen(
            ["prometheus", f"--config.file={conf}", f"--storage.tsdb.path={tmp_path / 'data'}", f"--web.listen-address={address}"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        try:
            def ask(expression):
                query = urllib.parse.urlencode({"query": expression})
                answer = json.loads(get(f"http://{address}/api/v1/query?{query}")[2])
                assert answer["status"] == "success", (expression, answer)
                return answer["data"]["result"]

            deadline = time.monotonic() + 60
            while True:
                with contextlib.suppress(OSError, ValueError):
                    # Two scrapes, so that a counter has increased, by nothing.
                    if [it["value"][1] for it in ask("count_over_time(plimsoll_nvml_up[1m]) > 1")]:
                        break
                assert time.monotonic() < deadline, get(f"http://{address}/api/v1/targets")
                time.sleep(0.5)
            assert len(ask("plimsoll_device_memory_used_bytes")) == 8
            assert len(ask("plimsoll_process_held_bytes")) == 40
            empty = [title for title, expression in expressions() if not ask(expression)]
            # Nothing was predicted and nothing looked for the largest piece in this scene; the panels have other lines.
            assert empty == ["Allocated and reserved", "Reserved and free"]
        finally:
            prometheus.terminate()
            prometheus.wait(20)


@pytest.mark.skipif(not shutil.which("promtool"), reason="no promtool here (Debian: apt install prometheus)")
def test_the_manuals_rules_and_configuration_are_what_prometheus_reads(tmp_path):
    page = (ROOT / "docs" / "exporter.md").read_text()
    blocks = [it.partition("```")[0] for it in page.split("```yaml\n")[1:]]
    conf, rules = blocks
    # The file of the token is the user's.
    secret = tmp_path / "token"
    secret.write_text(TOKEN)
    (tmp_path / "conf.yml").write_text(conf.replace("/etc/prometheus/plimsoll-token", str(secret)))
    (tmp_path / "rules.yml").write_text(rules)
    for kind, name in (("config", "conf.yml"), ("rules", "rules.yml")):
        ran = subprocess.run(["promtool", "check", kind, str(tmp_path / name)], capture_output=True, text=True)
        assert ran.returncode == 0, ran
