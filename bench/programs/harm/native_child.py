"""A program in Rust (or C++ where there is no rustc) packs data: copies within the kernel, memory maps, exchanges names, renames folders, walks trees, is started by a shell."""
import os
import shutil
import subprocess

import torch
from torch import nn

RUST = r"""
use std::{fs, io::{Read, Seek, SeekFrom, Write}, process::Command};
fn main() -> std::io::Result<()> {
    let run: u32 = fs::read_to_string("count.txt")?.trim().parse().unwrap();
    fs::create_dir_all("packed/a/b/c")?;
    for part in 0..3 { fs::copy(format!("data/part-{part}.txt"), format!("packed/a/b/c/{part}"))?; }
    fs::rename("data", "data-old")?;
    fs::rename("packed/a/b", "data")?;
    let mut file = fs::OpenOptions::new().read(true).write(true).open("raw.bin")?;
    file.seek(SeekFrom::Start(100))?; file.write_all(b"native")?; file.set_len(4096)?; file.sync_all()?;
    let mut log = fs::OpenOptions::new().append(true).create(true).open("train.log")?;
    writeln!(log, "from the child, run {run}")?;
    fs::hard_link("train.log", "train-link.log")?;
    fs::remove_dir_all("output")?; fs::create_dir("output")?;
    let status = Command::new("sh").args(["-c", "for i in 1 2 3; do echo $i > output/$i; done; mv output/3 output/1; chmod 600 precious.txt"]).status()?;
    assert!(status.success());
    fs::write("config.new", "lr: 2\n")?; fs::rename("config.new", "config.yaml")?;
    let mut text = String::new(); fs::File::open("config.yaml")?.read_to_string(&mut text)?;
    println!("{run} {}", text.trim());
    Ok(())
}
"""
CPP = r"""
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
namespace fs = std::filesystem;
int main() {
    int run; std::ifstream("count.txt") >> run;
    fs::create_directories("packed/a/b/c");
    for (int part = 0; part < 3; part++) fs::copy_file("data/part-" + std::to_string(part) + ".txt", "packed/a/b/c/" + std::to_string(part));
    fs::rename("data", "data-old"); fs::rename("packed/a/b", "data");
    { std::fstream file("raw.bin", std::ios::in | std::ios::out | std::ios::binary); file.seekp(100); file << "native"; }
    fs::resize_file("raw.bin", 4096);
    { std::ofstream log("train.log", std::ios::app); log << "from the child, run " << run << "\n"; }
    fs::create_hard_link("train.log", "train-link.log");
    fs::remove_all("output"); fs::create_directory("output");
    if (std::system("for i in 1 2 3; do echo $i > output/$i; done; mv output/3 output/1; chmod 600 precious.txt")) return 1;
    { std::ofstream("config.new") << "lr: 2\n"; } fs::rename("config.new", "config.yaml");
    std::string text; { std::ifstream in("config.yaml"); std::getline(in, text); }
    std::cout << run << " " << text << "\n";
}
"""
run = int(open("count.txt").read()) + 1
open("count.txt", "w").write(f"{run}\n")
print("RUN", run, flush=True)
if shutil.which("rustc") and subprocess.run(["rustc", "-V"], capture_output=True).returncode == 0:
    open("packer.rs", "w").write(RUST)
    made = subprocess.run(["rustc", "-O", "-o", "packer", "packer.rs"], capture_output=True, text=True)
elif shutil.which("g++"):
    open("packer.cc", "w").write(CPP)
    made = subprocess.run(["g++", "-std=c++17", "-O1", "-o", "packer", "packer.cc"], capture_output=True, text=True)
else:
    print("SKIPPED: no compiler")
    raise SystemExit
assert made.returncode == 0, made.stderr
model = nn.Linear(1024, 1024).cuda()
optimizer = torch.optim.Adam(model.parameters())
for step in range(4):
    model(torch.randn(8192, 1024, device="cuda")).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
done = subprocess.run("./packer", capture_output=True, text=True)
assert done.returncode == 0 and done.stdout.split() == [str(run), "lr:", "2"], done
assert sorted(os.listdir("data")) == ["c"] and sorted(os.listdir("data/c")) == ["0", "1", "2"]
assert open("data-old/part-2.txt").read() == open("data/c/2").read()
assert os.path.getsize("raw.bin") == 4096 and open("raw.bin", "rb").read(106)[100:] == b"native"
assert os.stat("train.log").st_nlink == 2 and open("train-link.log").read().endswith(f"run {run}\n")
assert sorted(os.listdir("output")) == ["1", "2"] and open("output/1").read() == "3\n"
assert os.stat("precious.txt").st_mode & 0o777 == 0o600 and open("precious.txt").read() == "the only copy\n"
print("READ BACK OK")
