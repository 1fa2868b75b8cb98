"""The store of a job whose other ranks are imagined."""

import torch
from plimsoll_agent.ranks.imagined import _Imagined
from plimsoll_agent.ranks.imagined_store import store_class


def test_others_have_written_what_this_rank_writes_and_are_in_no_trouble():
    asked = []
    store = store_class(torch.distributed)(asked.append)
    store.set("rank3/address", "here")
    assert store.get("rank5/address") == b"here" and asked == ["rank3/address", "rank5/address"]
    assert store.check(["rank5/address"]) and store.check(["whatever"])
    # `ProcessGroupNCCL` looks for these now and then, where a program has it do so.
    assert not store.check(["exception_dump"]) and not store.check(["default_pg//cuda//remote_error:0"])


def test_a_key_of_the_programs_is_no_group():
    for key in ("plain", "a//b", "cuda//0", ""):
        _Imagined._tell_who_meets(object(), key)
