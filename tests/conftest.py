"""What all tests share: the binary, and what it unpacks."""

import os
import signal
from pathlib import Path

import pytest
from harness import Plimsoll, Unpacked

# A shell starts what it puts into the background with Ctrl-C ignored, and children inherit that: then a script
# that is interrupted would not notice. With a handler here, children begin with the default.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_xdist_auto_num_workers(config):
    """Two more than there are processors: tests wait for processes that end and for ports, a quarter of the time with one more (two
    processors, 2026-11-28)."""
    return (os.cpu_count() or 1) + 2


def long_tests():
    """The lines of `long.txt`."""
    text = Path(__file__).with_name("long.txt").read_text(encoding="utf-8")
    return {line for line in text.splitlines() if line and not line.startswith("#")}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Of a test with `matrix(n)` all cases but n are for `make soak`, and so is what `long.txt` lists."""
    matrices = {}
    long = long_tests()
    for item in items:
        name = item.nodeid.removeprefix("tests/")
        if name in long or name.split("[")[0] in long:
            item.add_marker("soak")
        marker = item.get_closest_marker("matrix")
        if marker and not item.get_closest_marker("soak"):
            matrices.setdefault((item.path, item.originalname, *marker.args), []).append(item)
    for (_, _, n), cases in matrices.items():
        kept = {index * len(cases) // n for index in range(n)}
        for index, case in enumerate(cases):
            if index not in kept:
                case.add_marker("soak")


ALLOWED = {
    "no Prometheus here": "Debian's package of 100 MB would also start a server",
    "no promtool here": "it comes with Prometheus",
    "only root can be another user": "make test also runs for those who are not root",
    "this machine lets nobody mount a small disk": "containers without the right to mount",
    "cannot separate the script's writes": "containers without user namespaces or ptrace; each way has tests in crates/writes, too",
    "an allocation of torch says which module made it since 2.10": "for older versions of torch",
    "a GPU was measured with the libraries of torch 2.11": "for other versions of torch",
    "they are those of torch 2.11": "for other versions of torch",
    "built for this card, too": "one of the cards that a library's kernels are looked for on",
    "trains nothing": "one of the shapes",
    "this machine's own card is meant": "machines with a GPU; their screen is that of --gpu",
    "needs bitsandbytes and PEFT": "libraries that the other tests do without; the page's program was run with them",
}
"""Skips that CI may have: how the reason begins or what it contains, and why nothing is missing then."""


def pytest_terminal_summary(terminalreporter):
    """What was skipped and why stands at the end. In CI a skip that is not allowed fails the run."""
    reasons = {}
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reasons.setdefault(reason.removeprefix("Skipped: "), []).append(report.nodeid)
    if not reasons:
        return
    terminalreporter.section("skipped")
    for reason, tests in sorted(reasons.items()):
        is_allowed = any(allowed in reason for allowed in ALLOWED)
        terminalreporter.line(f"{'' if is_allowed else 'NOT ALLOWED: '}{' '.join(reason.split())[:200]} ({len(tests)}: {tests[0]}{', ...' if tests[1:] else ''})")


def pytest_sessionfinish(session):
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    skipped = reporter.stats.get("skipped", []) if reporter else []
    bad = [it for it in skipped if not any(allowed in str(it.longrepr) for allowed in ALLOWED)]
    if bad and os.environ.get("CI") == "true" and not session.exitstatus:
        session.exitstatus = 1


SOAK = """What `make soak` runs:
  every script of `make test` in a process of its own, with the release build;
  three processes that share a batch, ranks that are spawned, and ranks compared with those of two H200s;
  deep convolutional networks in double precision, with remedies and without;
  more combinations of remedies with compiled models, checkpoints of the script's own, embeddings and losses;
  a Ctrl-C in each further run, switches said as words for the command line;
  plans for loops of public texts on 8 GB, for the longest batch, for a validation, with settings of the allocator, measured on a device;
  steps that run out and are done again, in the rarer loops;
  the change written into a script in half precision, with SGD, with parameters in groups;
  the manual's commands with a ResNet-50, sweeps of Optuna and Hydra, and random programs on the allocator;
  a card that is calibrated on two devices, with what NCCL takes;
  a recording of three million events in the viewer, every block of three peaks, and the size of a page in one file;
  the viewer with a run that goes on, with damaged and with second recordings, and the button of every finding of every fixture;
  an engine's own errors and interrupted servers, whom a script reached over the network, DeepSpeed's launcher;
  a notebook from top to bottom, functions that are predicted from Python, hostile names in predictions;
  a world of files under each command and way that writes are kept apart, and with a training; all hostile files, sources, statuses and folders of strangers;
  what tests/long.txt lists: tests of more than a second of a processor, from files of which `make test` runs others;
  other versions of torch and Python, and a small job of each library that is there, if PLIMSOLL_OTHER_PYTHONS names some."""


def pytest_report_header(config):
    return SOAK if config.getoption("markexpr") != "not soak" else None


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def plimsoll(tmp_path, cache):
    return Plimsoll(tmp_path, cache)


@pytest.fixture(scope="session")
def unpack(cache):
    """What the binary gives to a script under some options of `predict`."""
    known = {}

    def unpack(*options):
        if options not in known:
            known[options] = Unpacked.ask(cache, options)
        return known[options]

    return unpack
