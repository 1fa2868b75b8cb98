"""Passes data through /tmp, /dev/shm, /var/tmp, a named pipe and a unix socket, to children too; leaves some of it behind."""
import multiprocessing
import os
import socket
import subprocess
import tempfile
from multiprocessing import shared_memory

import torch
from torch import nn

PLACE = "harm-tmp_and_shm"


def child(name, path):
    block = shared_memory.SharedMemory(name)
    block.buf[:5] = b"child"
    block.close()
    open(path, "a").write("child\n")


if __name__ == "__main__":
    run = int(open("count.txt").read()) + 1
    open("count.txt", "w").write(f"{run}\n")
    print("RUN", run, flush=True)
    left = f"/tmp/{PLACE}-left.txt"
    assert not os.path.exists(left), "somebody left this here before"
    open(left, "w").write("parent\n")
    folder = tempfile.mkdtemp(prefix=f"{PLACE}-")
    beside = f"/var/tmp/{PLACE}.bin"
    open(beside, "wb").write(bytes(range(256)))
    open(f"/dev/shm/{PLACE}-left", "wb").write(b"left in shared memory")
    block = shared_memory.SharedMemory(f"{PLACE}-block", create=True, size=4096)
    process = multiprocessing.get_context("spawn").Process(target=child, args=(block.name, left))
    process.start()
    process.join()
    assert process.exitcode == 0 and bytes(block.buf[:5]) == b"child"
    block.close()
    block.unlink()
    os.mkfifo(f"{folder}/pipe")
    with subprocess.Popen(["sh", "-c", f"echo through the pipe > {folder}/pipe"]):
        assert open(f"{folder}/pipe").read() == "through the pipe\n"
    server = socket.socket(socket.AF_UNIX)
    server.bind(f"{folder}/socket")
    server.listen()
    talker = socket.socket(socket.AF_UNIX)
    talker.connect(f"{folder}/socket")
    talker.sendall(b"hello")
    assert server.accept()[0].recv(5) == b"hello"
    model = nn.Linear(1024, 1024).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    for step in range(4):
        model(torch.randn(8192, 1024, device="cuda")).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        torch.save(model.state_dict(), f"{folder}/{step}.pt")
    assert open(left).read() == "parent\nchild\n"
    assert torch.load(f"{folder}/3.pt").keys() == model.state_dict().keys()
    assert open(beside, "rb").read() == bytes(range(256))
    print("READ BACK OK")
