"""What leaves the script's own processes is real, and the report says whom it reached."""

import http.server
import json
import os
import socket
import threading

import pytest
from harness import COLD, PYTHON

TRAINS = """
import torch
net = torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
def train(x):
    optimizer.zero_grad(); net(x.cuda()).sum().backward(); optimizer.step()
"""
TELLS = """
import os, socket, urllib.request
def tell():
    request = urllib.request.Request("http://localhost:%s/hook" % os.environ["WEB"], data=b"loss: 0.000", method="POST")
    urllib.request.urlopen(request, timeout=120).read()
tell()
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"steps:1|c", ("127.0.0.1", int(os.environ["STATSD"])))
"""
# A manager of multiprocessing, workers of a loader, and a server that the script starts itself.
OWN = """
import multiprocessing, socket, threading
server = socket.create_server(("127.0.0.1", 0))
threading.Thread(target=server.accept, daemon=True).start()
socket.create_connection(server.getsockname())
with multiprocessing.Manager() as manager:
    manager.dict()["a"] = 1
for x in torch.utils.data.DataLoader(torch.ones(64, 64), batch_size=8, num_workers=2):
    train(x)
"""


@pytest.fixture
def outside():
    """A server for posts and one for datagrams, which are nobody's below plimsoll; what they got."""
    got = []

    class Hook(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            got.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    web = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hook)
    statsd = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    statsd.bind(("127.0.0.1", 0))
    threading.Thread(target=web.serve_forever, daemon=True).start()
    yield {"WEB": str(web.server_port), "STATSD": str(statsd.getsockname()[1])}, got
    web.shutdown()
    web.server_close()
    statsd.close()


@pytest.mark.soak
@pytest.mark.parametrize("way", ["mounts" if os.geteuid() == 0 else "user", "traced"])
def test_whom_the_script_reached_is_said_and_its_own_processes_are_nobody(plimsoll, outside, way):
    ports, got = outside
    script = plimsoll.script(TRAINS + TELLS + OWN + "tell()\n")
    environment = plimsoll.cold(PLIMSOLL_WRITES_WAY=way, **ports)
    ran = plimsoll.predict(script, options=["--gpu", "t4", "--until-exit"], environment=environment)
    assert ran.code == 0 and got == [b"loss: 0.000"] * 2, ran
    assert ran.report["connections"] == [
        {"to": f"localhost:{ports['WEB']}", "by": "tcp", "count": 2},
        {"to": f"localhost:{ports['STATSD']}", "by": "udp", "count": None},
    ]
    (note,) = (it["text"] for it in ran.report["notes"] if it["code"] == "network")
    assert note == (
        f"the script connected to localhost:{ports['WEB']} (2 times) and sent datagrams to localhost:{ports['STATSD']}: "
        "that traffic was real; `--offline` takes the network away"
    )
    said = " ".join(ran.stdout.split())
    assert "the script connected to localhost:" in said and "`--offline` takes the network away" in said, ran


def test_it_is_said_where_the_script_fails(plimsoll, outside):
    ports, _ = outside
    ran = plimsoll.predict(plimsoll.script(TRAINS + TELLS + "raise KeyError(1)\n"), environment=plimsoll.environment(**ports))
    assert ran.code == 2 and "raised KeyError" in ran.sentences[0], ran
    assert ran.sentences[1].startswith(f"the script connected to localhost:{ports['WEB']} and sent datagrams to"), ran


@pytest.mark.soak
def test_offline_it_reaches_nobody(plimsoll, outside):
    ports, got = outside
    tells = TELLS.replace("\ntell()\n", "\ntry: tell()\nexcept OSError as error: print('refused')\n")
    # Datagrams to nobody on this machine are sent, and lost.
    tells = tells.partition("socket.socket(")[0]
    ran = plimsoll.predict(
        plimsoll.script(TRAINS + tells + "for _ in range(4): train(torch.ones(8, 64))\n"),
        options=["--gpu", "t4", "--offline"],
        environment=plimsoll.cold(**ports),
    )
    assert ran.code == 0 and "refused" in ran.stdout and got == [], ran
    assert ran.report["connections"] == [] and "network" not in [it["code"] for it in ran.report["notes"]], ran


RANKS = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64).cuda())
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(4):
    optimizer.zero_grad(); model(torch.ones(8, 64, device="cuda")).sum().backward(); optimizer.step()
dist.destroy_process_group()
"""


@pytest.mark.soak
def test_ranks_that_meet_on_this_machine_reach_nobody_outside(plimsoll):
    plimsoll.script(RANKS)
    words = [COLD, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone", "train.py"]
    ran = plimsoll.predict(*words, options=["--gpu", "t4", "--gpus", "2", "--all-ranks"])
    assert ran.code == 0 and ran.report["connections"] == [], ran


@pytest.mark.soak
def test_a_search_counts_all_its_runs_and_check_says_it_too(plimsoll, outside):
    ports, got = outside
    plimsoll.script(TRAINS + TELLS + "for _ in range(6): train(torch.ones(8, 64))\n")
    environment = plimsoll.environment(**ports)
    ran = plimsoll.run("fit", "--gpu", "t4", "--json", "fit.json", "--", PYTHON, "train.py", environment=environment)
    found = json.loads((plimsoll.folder / "fit.json").read_text())
    assert ran.code == 0 and found["connections"][0] == {"to": f"localhost:{ports['WEB']}", "by": "tcp", "count": len(got)}, ran
    assert "the script connected to localhost:" in ran.stdout, ran
    ran = plimsoll.run("check", "--add", "train", "--gpu", "t4", "--", PYTHON, "train.py", environment=environment)
    assert ran.code == 0 and ran.sentences[-1].startswith("the script connected to localhost:"), ran
