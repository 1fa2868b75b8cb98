"""What all tests share: the binary, and what it unpacks."""

import signal

import pytest
from harness import Plimsoll, Unpacked

# A shell starts what it puts into the background with Ctrl-C ignored, and children inherit that: then a script
# that is interrupted would not notice. With a handler here, children begin with the default.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


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
