//! Programs that write zeros, with the library preloaded: the same bytes, and no disk.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::{fs, os::unix::fs::MetadataExt as _, path::PathBuf, process::Command};

fn library() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    tests.parent().unwrap().join("libplimsoll_writes_preload.so")
}

/// (program, its file's length, the most that it may take on the disk).
const PROGRAMS: [(&str, u64, u64); 5] = [
    ("f = open('f', 'wb'); f.write(bytes(40 << 20)); f.close()", 40 << 20, 1 << 20),
    (
        "f = open('f', 'wb'); f.write(b'head'); f.write(bytes(40 << 20)); f.write(b'tail')",
        (40 << 20) + 8,
        1 << 20,
    ),
    // Where something was, there are zeros now.
    (
        "open('f', 'wb').write(b'x' * 300000)\n\
         f = open('f', 'r+b', buffering=0); f.seek(1000); f.write(bytes(200000)); f.write(b'y')\n\
         s = open('f', 'rb').read(); assert s == b'x' * 1000 + bytes(200000) + b'y' + b'x' * 98999",
        300_000,
        300_000,
    ),
    (
        "import os; f = os.open('f', os.O_RDWR | os.O_CREAT)\n\
         assert os.pwrite(f, bytes(1 << 20), 5) == 1 << 20 and os.lseek(f, 0, 1) == 0\n\
         assert os.writev(f, [b'a', bytes(1 << 20)]) == (1 << 20) + 1 and os.lseek(f, 0, 1) == (1 << 20) + 1",
        (1 << 20) + 5,
        1 << 16,
    ),
    // To append is to write where the end is: as it is, for the kernel to do.
    ("for i in range(2): open('f', 'ab').write(bytes(100000))", 200_000, 1 << 20),
];

#[test]
fn zeros_are_holes() {
    for (program, length, most) in PROGRAMS {
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new("python3");
        command.args(["-c", program]).current_dir(dir.path()).env("LD_PRELOAD", library());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
        let file = dir.path().join("f");
        let meta = fs::metadata(&file).unwrap();
        assert_eq!(meta.len(), length, "{program}");
        assert!(512 * meta.blocks() <= most, "{program}: {} bytes", 512 * meta.blocks());
        let bytes = fs::read(&file).unwrap();
        let written: Vec<u8> = bytes.into_iter().filter(|it| *it != 0).collect();
        assert!(written.len() < 110_000, "{program}");
    }
}

/// What is no file is written to as ever.
#[test]
fn pipes_get_their_zeros() {
    let program = "import os; os.write(1, bytes(65536)); os.write(1, bytes(100000))";
    let mut command = Command::new("python3");
    let output = command.args(["-c", program]).env("LD_PRELOAD", library()).output().unwrap();
    assert_eq!(output.stdout, vec![0; 165_536]);
}
