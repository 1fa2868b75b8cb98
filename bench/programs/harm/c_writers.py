"""Compiles a C program with gcc, with and without libc as a shared library, that overwrites, renames, truncates and unlinks files."""
import os
import shutil
import subprocess

import torch
from torch import nn

SOURCE = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(int count, char **words) {
    const char *name = words[1]; char path[200];
    snprintf(path, sizeof path, "output/%s.txt", name);
    FILE *f = fopen(path, "w"); if (!f) return 1;
    fprintf(f, "written by %s\n", name); fclose(f);
    int d = open("raw.bin", O_RDWR); if (d < 0 || pwrite(d, name, strlen(name), 64) < 0) return 2; close(d);
    /* The same with no function of libc between: what Go and Rust without libc do. */
    long s = syscall(SYS_openat, AT_FDCWD, "precious.txt", O_WRONLY | O_APPEND, 0);
    if (s < 0 || syscall(SYS_write, s, "x", 1) != 1) return 3;
    syscall(SYS_close, s);
    snprintf(path, sizeof path, "output/%s.bin", name);
    if (rename(strcmp(name, "shared") ? "data/part-1.txt" : "data/part-0.txt", path)) return 4;
    if (truncate("train.log", 10) || mkdir(name, 0755) || chmod("tool.sh", 0700)) return 5;
    char buffer[20] = {0}; FILE *r = fopen("count.txt", "r"); if (!r || !fgets(buffer, 20, r)) return 6;
    printf("%s", buffer); return 0;
}
"""
run = int(open("count.txt").read()) + 1
open("count.txt", "w").write(f"{run}\n")
print("RUN", run, flush=True)
if not shutil.which("gcc"):
    print("SKIPPED: no gcc")
    raise SystemExit
open("writer.c", "w").write(SOURCE)
before = os.path.getsize("precious.txt")
for name, more in ("shared", []), ("static", ["-static"]):
    made = subprocess.run(["gcc", "-O1", *more, "-o", f"writer-{name}", "writer.c"], capture_output=True, text=True)
    if made.returncode:
        print(f"SKIPPED in part: no {name} libc")
        continue
    done = subprocess.run([f"./writer-{name}", name], capture_output=True, text=True)
    assert done.returncode == 0 and int(done.stdout) == run, done  # it sees what this process wrote
    assert open(f"output/{name}.txt").read() == f"written by {name}\n" and os.path.isdir(name)
    assert open("raw.bin", "rb").read(70)[64:] == name.encode()
    before += 1
    assert os.path.getsize("precious.txt") == before and os.path.getsize("train.log") == 10
    assert os.path.getsize(f"output/{name}.bin") > 1000
model = nn.Linear(1024, 1024).cuda()
optimizer = torch.optim.Adam(model.parameters())
for step in range(4):
    model(torch.randn(8192, 1024, device="cuda")).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
print("READ BACK OK")
