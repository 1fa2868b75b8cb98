//! Measures the reader alone: `bench/instruments/read.py` calls it in a process of its own and takes the
//! time and the memory from the operating system.
#![expect(clippy::print_stdout, reason = "a measurement prints what it measured")]

use std::{env, fs::File, io::Read as _};

use plimsoll_core::sources::snapshot;

fn main() {
    let mut args = env::args().skip(1);
    let (Some(what), Some(path)) = (args.next(), args.next()) else {
        panic!("read_bench decode|bytes FILE");
    };
    match what.as_str() {
        "decode" => {
            let file = File::open(&path).expect("a file that can be read");
            let (trace, warnings) = snapshot::read_from(file).expect("a snapshot");
            let events: usize = trace.devices.iter().map(|it| it.events.len()).sum();
            println!("{events} events, {} stacks, {warnings:?}", trace.stacks.n_nodes());
        }
        // What no reader can be faster than.
        "bytes" => {
            let mut file = File::open(&path).expect("a file that can be read");
            let mut room = vec![0; 128 << 10];
            let mut sum = 0_u64;
            loop {
                let n = file.read(&mut room).expect("bytes");
                if n == 0 {
                    break;
                }
                sum = room[..n].iter().fold(sum, |sum, it| sum.wrapping_add(u64::from(*it)));
            }
            println!("{sum}");
        }
        _ => panic!("no such measurement: {what}"),
    }
}
