"""What other programs read from an export: DuckDB the Parquet tables, with the queries of the manual; a browser
the flame graph, which is XML."""

import json
import re
import xml.etree.ElementTree as ElementTree

import duckdb
import pytest
from harness import ROOT, Plimsoll

SNAPSHOTS = sorted((ROOT / "fixtures" / "snapshots").glob("*.pickle"))
QUERIES = re.findall(r"^```sql\n(.*?)^```", (ROOT / "docs" / "export.md").read_text(), re.MULTILINE | re.DOTALL)


@pytest.fixture(params=SNAPSHOTS, ids=lambda it: it.stem)
def exported(request, tmp_path, cache):
    """A connection to the tables of a recording, and what `explain` says of it."""
    plimsoll = Plimsoll(tmp_path, cache)
    ran = plimsoll.run("export", str(request.param), "--to", "parquet", "-o", "run.parquet")
    assert ran.code == 0, ran
    said = json.loads(plimsoll.run("explain", str(request.param), "--json", "-").stdout)
    connection = duckdb.connect()
    connection.execute(f"set file_search_path = '{tmp_path}'")
    return connection, said


def rows(connection, query):
    result = connection.execute(query)
    names = [it[0] for it in result.description]
    return [dict(zip(names, row)) for row in result.fetchall()]


def test_the_manual_has_its_queries():
    assert len(QUERIES) == 4


def test_queries_of_the_manual_add_up_to_the_peak(exported):
    connection, said = exported
    by_function, by_line, longest, growth = (rows(connection, query) for query in QUERIES)
    peak = said["peak_allocated_bytes"]
    assert sum(it["bytes"] for it in by_line) == peak
    # A stack counts once for a function, however often that calls itself; the outermost has nearly all.
    assert all(0 < it["bytes"] <= peak for it in by_function)
    lives = [it["events"] for it in longest]
    assert lives == sorted(lives, reverse=True) and lives[0] <= said["window"]["events"]
    for it in growth:
        one = f"select sum(size_bytes) as n from 'run.parquet/blocks.parquet' where stack = {it['stack']}"
        assert it["bytes"] <= rows(connection, one)[0]["n"]


def test_levels_are_those_of_the_report_at_every_event(exported):
    connection, said = exported
    highest = rows(connection, "select max(allocated_bytes) a, max(reserved_bytes) r from 'run.parquet/events.parquet'")[0]
    assert (highest["a"], highest["r"]) == (said["peak_allocated_bytes"], said["peak_reserved_bytes"])
    # The manual's words for "lives after event E", at some events.
    wrong = rows(
        connection,
        """
        select e.event, e.allocated_bytes, sum(b.size_bytes) as held
        from (select * from 'run.parquet/events.parquet' using sample 50 rows (reservoir, 7)) e
        join 'run.parquet/blocks.parquet' b
          on coalesce(b.alloc_event, -1) <= e.event and coalesce(b.free_event, 9e18) > e.event
        group by all having e.allocated_bytes <> held
        """,
    )
    assert wrong == []


def test_a_flame_graph_is_xml_and_its_frames_lie_in_their_callers(tmp_path, cache):
    plimsoll = Plimsoll(tmp_path, cache)
    for snapshot in SNAPSHOTS:
        ran = plimsoll.run("export", str(snapshot), "--to", "flamegraph", "-o", f"{snapshot.stem}.svg")
        assert ran.code == 0, ran
        svg = ElementTree.parse(tmp_path / f"{snapshot.stem}.svg").getroot()
        space = {"svg": "http://www.w3.org/2000/svg"}
        frames = svg.find("svg:g[@id='frames']", space)
        boxes = []
        for rect in frames.iterfind("svg:g/svg:rect", space):
            x, y, width = (float(rect.get(name)) for name in ("x", "y", "width"))
            boxes.append((y, x, x + width))
        top = min(boxes)[0]
        callers = {}
        for y, left, right in boxes:
            callers.setdefault(y, []).append((left, right))
        for y, left, right in boxes:
            if y != top:
                above = callers[y - 18]
                assert any(a - 0.02 <= left and right <= b + 0.02 for a, b in above), (snapshot.stem, y, left, right)
