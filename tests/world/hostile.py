"""Files that somebody may be sent to look at, made so that looking harms: recordings in plimsoll's own form with other contents than it writes, archives,
pickles, logs, status files. Each is small on the disk, or made of a few bytes many times."""

import bz2
import copy
import gzip
import io
import json
import lzma
import pickle
import struct
import warnings
import zipfile
import zlib
from pathlib import Path

from harness import ROOT

GOOD = {
    "process-4711/agent.jsonl": (ROOT / "fixtures/recordings/train/agent.jsonl").read_bytes(),
    "process-4711/snapshot.pickle": (ROOT / "fixtures/recordings/train/snapshot.pickle").read_bytes(),
    "phantom.conf": b"name = NVIDIA T4\ntotal_bytes = 16106127360\n",
    "manifest.json": json.dumps(
        {"format": 1, "plimsoll": "0.1.0", "mode": "predict", "command": ["python", "train.py"], "exit_code": 0, "signal": None, "seconds": 3.5}
    ).encode(),
}
DEEP = 50_000
NASTY = [None, True, -1, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 1e308, -1e308, "", "x" * 100_000, "\0\x1b]0;x\x07\n\u202e", "../../../../etc/passwd", [], {}, [[[]]], [2**62] * 9]


def archive(files, method=zipfile.ZIP_DEFLATED):
    """A recording as one file; `files` are pairs, so that a name can come twice."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as it:
        for name, data in files.items() if isinstance(files, dict) else files:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # A name comes twice.
                it.writestr(zipfile.ZipInfo(name), data, method)
    return out.getvalue()


def with_notes(*lines):
    notes = b"\n".join(it if isinstance(it, bytes) else json.dumps(it).encode() for it in lines)
    return archive(GOOD | {"process-4711/agent.jsonl": notes + b"\n"})


def with_snapshot(data):
    return archive(GOOD | {"process-4711/snapshot.pickle": data})


def archives():
    """What is wrong with the archive itself, or with the names in it."""
    good = archive(GOOD)
    begin = GOOD["process-4711/agent.jsonl"]
    for name in ("../../outside", "/tmp/outside", "process-4711/../../../outside", "process-1/x/../../agent.jsonl", "C:\\outside", "~/outside", "process-4711/\n\x1b[31m"):
        yield f"a member {name!r}", lambda: archive([*GOOD.items(), (name, b"outside")])
    for pid in ("0", "-1", "4294967296", "99999999999999999999", "4711x", " 4711", "0x10", "1e9", ""):
        yield f"a process {pid!r}", lambda: archive([(f"process-{pid}/agent.jsonl", begin), *GOOD.items()])
    yield "no process", lambda: archive({"manifest.json": GOOD["manifest.json"]})
    yield "a process twice", lambda: archive([*GOOD.items(), *GOOD.items()])
    yield "many processes", lambda: archive([(f"process-{it}/agent.jsonl", begin[:300]) for it in range(4000)])
    yield "too many processes", lambda: archive([(f"process-{it}/agent.jsonl", b"") for it in range(70_000)])
    yield "many snapshots", lambda: archive([(f"process-{it}/snapshot.pickle", GOOD["process-4711/snapshot.pickle"]) for it in range(60)])
    yield "a name of 64 KiB", lambda: archive([("x" * 65_000, b""), *GOOD.items()])
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        yield f"method {method}", lambda: archive(GOOD, method)
    yield "an unknown method", lambda: good.replace(b"\x08\x00\x00\x00\x21\x00", b"\x63\x00\x00\x00\x21\x00")
    yield "encrypted", lambda: _patched(good, 6, struct.pack("<H", 1), 8)
    yield "a wrong checksum", lambda: _patched(good, 14, bytes(4), 16)
    yield "a claimed length", lambda: _patched(good, 22, struct.pack("<I", 0xFFFFFFF0), 24)
    yield "a claimed packed length", lambda: _patched(good, 18, struct.pack("<I", 0xFFFFFFF0), 20)
    yield "a huge offset", lambda: good[:-22] + good[-22:-6] + struct.pack("<I", 0xFFFFFFF0) + good[-2:]
    yield "many claimed members", lambda: good[:-14] + struct.pack("<HH", 0xFFFF, 0xFFFF) + good[-10:]
    for part in (0.1, 0.5, 0.9, 0.999):
        yield f"{part} of it", lambda: good[: int(part * len(good))]
    yield "junk before it", lambda: b"PK\x03\x04" + b"junk" * 100 + good
    yield "junk behind it", lambda: good + b"junk" * 10_000
    yield "a comment of 64 KiB", lambda: good[:-2] + struct.pack("<H", 65_535) + b"PK\x05\x06" * 16_383 + b"xxx"
    yield "a link", _link
    yield "a bomb", lambda: archive(GOOD | {"process-4711/snapshot.pickle": bytes(300 << 20)})
    yield "bombs that share their bytes", overlapping
    yield "an archive in it", lambda: archive(GOOD | {"process-4711/snapshot.pickle": good})
    yield "a packed snapshot in it", lambda: archive(GOOD | {"process-4711/snapshot.pickle": gzip.compress(GOOD["process-4711/snapshot.pickle"])})


def _link():
    link = zipfile.ZipInfo("process-4711/agent.jsonl")
    link.external_attr = 0o120777 << 16
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as it:
        it.writestr(link, "/etc/passwd")
    return out.getvalue()


def _patched(data, at, value, of_directory):
    """The same place of each local header, and of each entry of the directory."""
    data, position = bytearray(data), 0
    for mark, place in ((b"PK\x03\x04", at), (b"PK\x01\x02", of_directory)):
        position = data.find(mark)
        while position != -1:
            data[position + place : position + place + len(value)] = value
            position = data.find(mark, position + 4)
    return bytes(data)


def overlapping():
    """Members that are all the same packed bytes: 1 MiB becomes 4 GiB."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    data = packer.compress(bytes(64 << 20)) + packer.flush()
    crc, name = zlib.crc32(bytes(64 << 20)), b"process-1/snapshot.pickle"
    head = struct.pack("<4s5HIIIHH", b"PK\x03\x04", 20, 0, 8, 0, 33, crc, len(data), 64 << 20, len(name), 0) + name
    directory = b""
    for it in range(64):
        other = b"process-%d/snapshot.pickle" % (it + 1)
        directory += struct.pack("<4s6HIIIHHHHHII", b"PK\x01\x02", 20, 20, 0, 8, 0, 33, crc, len(data), 64 << 20, len(other), 0, 0, 0, 0, 0, 0) + other
    end = struct.pack("<4s4HIIH", b"PK\x05\x06", 0, 0, 64, 64, len(directory), len(head) + len(data), 0)
    return head + data + directory + end


def manifests():
    good = json.loads(GOOD["manifest.json"])
    for key in good:
        for value in NASTY:
            yield f"manifest {key} = {str(value)[:20]!r}", lambda: archive(GOOD | {"manifest.json": json.dumps(good | {key: value}).encode()})
    for text in (b"", b"{", b"[" * DEEP, b"\xff\xfe", b"null"):
        yield f"manifest {text[:9]!r}", lambda: archive(GOOD | {"manifest.json": text})
    for text in (b"", b"total_bytes = -1\n", b"total_bytes = 18446744073709551615\n", b"name = " + b"x" * 1_000_000, b"\0" * 1000, b"= = =\n" * 1000):
        yield f"phantom.conf {text[:30]!r}", lambda: archive(GOOD | {"phantom.conf": text})


def _leaves(value, path=()):
    """Every place in it, the first of those that look alike."""
    yield path
    if isinstance(value, dict):
        for key in value:
            yield from _leaves(value[key], (*path, key))
    elif isinstance(value, (list, tuple)) and value:
        yield from _leaves(value[0], (*path, 0))


def _replaced(value, path, new):
    if not path:
        return new
    res = copy.copy(value) if not isinstance(value, tuple) else list(value)
    res[path[0]] = _replaced(value[path[0]], path[1:], new)
    return res


def notes():
    """Each key of each kind of line, with each of NASTY in its place."""
    lines = [json.loads(it) for it in GOOD["process-4711/agent.jsonl"].splitlines()]
    oom = [json.loads(it) for it in (ROOT / "fixtures/recordings/oom/agent.jsonl").read_text().splitlines()]
    seen = set()
    for all_lines in (lines, oom):
        for index, line in enumerate(all_lines):
            for path in _leaves(line):
                place = (line["kind"], line.get("what"), path)
                if path and place not in seen:
                    seen.add(place)
                    for value in NASTY:
                        changed = [*all_lines[:index], _replaced(line, path, value), *all_lines[index + 1 :]]
                        yield f"{line['kind']} {'.'.join(map(str, path))} = {str(value)[:20]!r}", lambda: with_notes(*changed)
    begin = lines[0]
    for version in (0, 2, 10**6, "1"):
        yield f"format {version!r}", lambda: with_notes(begin | {"format": version}, *lines[1:])
    yield "no notes", lambda: with_notes(b"")
    yield "zeros", lambda: with_notes(bytes(1 << 20))
    yield "deep", lambda: with_notes(begin, b'{"kind":"mark","what":' + b"[" * DEEP)
    yield "deep and whole", lambda: with_notes(begin, b'{"kind":"note","code":"stop","text":' + b"[" * DEEP + b"]" * DEEP + b"}")
    yield "one long line", lambda: with_notes(begin, b'{"kind":"note","code":"stop","text":"' + b"x" * (20 << 20) + b'"}')
    yield "many beginnings", lambda: with_notes(*[begin] * 30_000)
    yield "many ends", lambda: with_notes(begin, *[lines[-1]] * 30_000)
    mark = {"kind": "mark", "what": "step_end", "phase": None, "t": 1.0, "frees": [0], "reserved": [0], "allocated": [0]}
    yield "many steps at one place", lambda: with_notes(begin, *(mark | {"step": it, "allocs": [1]} for it in range(30_000)))
    yield "steps that go back", lambda: with_notes(begin, *(mark | {"step": 30_000 - it, "allocs": [30_000 - it]} for it in range(30_000)))
    many = [0] * 300_000
    yield "many devices", lambda: with_notes(begin, mark | {"step": 1, "allocs": many, "frees": many, "reserved": many, "allocated": many})
    entry = {"name": "w", "role": "parameter", "address": 4096, "bytes": 2**62, "model": "M"}
    yield "many tensors", lambda: with_notes(begin, {"kind": "tensors", "device": 0, "allocs": [1], "frees": [0], "entries": [entry] * 100_000})
    yield "a tensor of each device", lambda: with_notes(begin, *({"kind": "tensors", "device": 2**it, "allocs": [1], "frees": [0], "entries": [entry]} for it in range(64)))
    yield "two notes of one run", lambda: with_notes(*lines, *lines)
    yield "lines from the last to the first", lambda: with_notes(*lines[::-1])


def pickles():
    """Snapshots: each key with each of NASTY, and pickles that do something."""
    good = pickle.loads(GOOD["process-4711/snapshot.pickle"])
    seen = set()
    for path in _leaves(good):
        if path and path not in seen:
            seen.add(path)
            for value in NASTY:
                try:
                    yield f"snapshot {'.'.join(map(str, path))} = {str(value)[:20]!r}", lambda: with_snapshot(pickle.dumps(_replaced(good, path, value), 4))
                except TypeError:
                    pass
    event = good["device_traces"][0][0]
    for action in ("alloc", "free_requested", "free_completed", "free", "segment_alloc", "segment_free", "segment_map", "segment_unmap", "snapshot", "oom", "nothing"):
        trace = [dict(event, action=action, addr=2**64 - 512, size=2**62 + 1)] * 50
        yield f"fifty times {action}", lambda: with_snapshot(pickle.dumps(dict(good, device_traces=[trace]), 4))
    yield "a thousand devices", lambda: with_snapshot(pickle.dumps(dict(good, device_traces=[good["device_traces"][0][:3]] * 1000), 4))
    yield "a frame of a thousand frames", lambda: with_snapshot(pickle.dumps(dict(good, device_traces=[[dict(event, frames=event["frames"] * 1000)] * 1000]), 4))
    for name, code in {
        "REDUCE": b"\x80\x04cos\nsystem\n\x8c\x14touch plimsoll-marker\x85R.",
        "INST": b"(S'touch plimsoll-marker'\nios\nsystem\n.",
        "OBJ": b"\x80\x04(cos\nsystem\n\x8c\x14touch plimsoll-marker\x6f.",
        "NEWOBJ": b"\x80\x04cos\nsystem\n\x8c\x14touch plimsoll-marker\x85\x81.",
        "STACK_GLOBAL": b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x14touch plimsoll-marker\x85R.",
        "BUILD": b"\x80\x04}cos\nsystem\nb.",
        "PERSID": b"P1\n.",
        "EXT1": b"\x80\x02\x82\x01.",
        "MARKs": b"(" * 1_000_000 + b".",
        "deep lists": b"]" * 200_000 + b"a" * 199_999 + b".",
        "deep tuples": b")" + b"\x85" * 500_000 + b".",
        "itself": b"\x80\x04]\x94h\x00a.",
        "a bomb of references": b"\x80\x04]\x94" + b"".join(b"](" + b"h%c" % it * 10 + b"e\x94" for it in range(40)) + b".",
        "a long text that is claimed": b"\x80\x04\x8d" + struct.pack("<Q", 2**62) + b"x",
        "a long frame that is claimed": b"\x80\x04\x95" + struct.pack("<Q", 2**63) + b"x",
        "a long number": b"\x80\x02\x8b" + struct.pack("<i", 2**31 - 1) + b"x",
        "a negative length": b"\x80\x02\x8b" + struct.pack("<i", -1) + b"x.",
        "an index into the memo": b"\x80\x04j" + struct.pack("<I", 2**32 - 1) + b".",
        "a memo that is put far": b"\x80\x04]r" + struct.pack("<I", 2**32 - 1) + b".",
        "a number of a million digits": b"I" + b"9" * 1_000_000 + b"\n.",
        "protocol 200": b"\x80\xc8].",
    }.items():
        yield f"pickle {name}", lambda: code
        yield f"recording with pickle {name}", lambda: with_snapshot(code)


def packed():
    """Archives of one file that grow."""
    plain = GOOD["process-4711/snapshot.pickle"]
    zeros = bytes(64 << 20)
    for name, pack in {"gzip": gzip.compress, "xz": lzma.compress}.items():
        yield f"{name} of zeros", lambda: pack(zeros)
        yield f"{name} in {name}", lambda: pack(pack(plain))
        yield f"half of {name}", lambda: pack(plain)[: len(pack(plain)) // 2]
        yield f"{name} with other bytes", lambda: pack(plain)[:40] + b"\xff" * 40 + pack(plain)[80:]
    yield "gzip members", lambda: gzip.compress(zeros) * 20
    yield "a large window of xz", lambda: b"\xfd7zXZ\0\0\4\xe6\xd6\xb4\x46\x02\0\x21\x01\x28\0\0\0" + bytes(4)
    yield "a large window of zstd", lambda: b"\x28\xb5\x2f\xfd\x00\xf8" + bytes(20)
    yield "a zstd block of zeros", lambda: b"\x28\xb5\x2f\xfd\x00\x58" + (b"\x02\x00\x10\x00" * 2000)
    yield "bzip2", lambda: bz2.compress(plain)


def texts():
    """Logs, tables and JSON."""
    for name, text in {
        "empty": b"",
        "a byte": b"\0",
        "random": bytes((it * 7919 + it // 3) % 256 for it in range(100_000)),
        "deep JSON": b"[" * 1_000_000,
        "deep JSON that ends": b'{"device_traces":' + b"[" * DEEP + b"]" * DEEP + b"}",
        "JSON of a large number": b'{"segments": [], "device_traces": [[{"action": "alloc", "addr": 1e400, "size": 1e400}]]}',
        "JSON twice": b'{"segments": []}' * 1000,
        "a line of 5 MB": b"CUDA out of memory. Tried to allocate " + b"9" * 5_000_000 + b" GiB.",
        "many messages": b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 8.00 GiB of which 1.00 GiB is free.\n" * 20_000,
        "numbers that overflow": b"CUDA out of memory. Tried to allocate 99999999999999999999999.00 GiB. GPU 99999999999 has a total capacity of 1e999 GiB of which -1 GiB is free.",
        "a profiler's trace": b'{"schemaVersion": 1, "traceEvents": [' + b'{"ph": "i", "name": "[memory]", "ts": 1e308, "args": {"Total Allocated": 1e308, "Bytes": -1e308, "Addr": -1}},' * 20_000 + b"]}",
        "brackets": b"((((" * 200_000,
        "carriage returns": b"\r" * 2_000_000,
        "surrogates": b'{"segments": "\\ud800\\udfff\\ud800"}',
    }.items():
        yield f"text {name}", lambda: text


def all_of_them():
    """(name, what makes it): it is to be made before the next one is asked for."""
    for kind in (archives, manifests, notes, pickles, packed, texts):
        for name, make in kind():
            yield f"{kind.__name__}: {name}", make


def write_a_card(folder: Path):
    """Card files of strangers: what `--gpu` takes."""
    good = 'name = "A card"\nid = "a-card"\n'
    for name, text in {
        "empty": "",
        "deep": "a = " + "[" * DEEP,
        "numbers": good + "\n".join(f"{it} = {value}" for it in ("total", "total_bytes", "memory", "context", "sm") for value in ("-1",)),
        "text": good + 'total = "99999999999999999999 GiB"\n',
        "escapes": 'name = "\\u001b]0;x\\u0007\\n\\u202e"\nid = "../../x"\n',
        "long": 'name = "' + "x" * 1_000_000 + '"\n',
        "binary": "\x00\x01\x02",
        "a key in itself": "a.a.a = 1\na = 2\n",
    }.items():
        path = folder / f"{name.replace(' ', '-')}.toml"
        path.write_text(text)
        yield path
