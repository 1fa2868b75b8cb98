//! Makes the functions of `entry_points.txt` that need no code of their own, and gives the library
//! the soname under which the driver is looked for.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

/// The answer to a call that is not imitated: each library's own "not supported".
const REFUSALS: [(&str, i32); 11] = [
    ("cudart", 801),
    ("driver", 801),
    ("nvml", 3),
    ("cublas", 15),
    ("cublasLt", 15),
    ("cusolver", 7),
    ("cusparse", 10),
    ("cufft", 16),
    ("curand", 999),
    ("cudnn", 3000),
    ("nccl", 5),
];

fn main() {
    println!("cargo:rerun-if-changed=entry_points.txt");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");

    let text =
        std::fs::read_to_string("entry_points.txt").expect("entry_points.txt is beside build.rs");
    let mut groups: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    for (number, line) in text.lines().enumerate() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [] => {}
            [first, ..] if first.starts_with('#') => {}
            [library, name, answer] => groups.entry((answer, library)).or_default().push(name),
            _ => panic!("entry_points.txt:{}: expected `library name answer`: {line}", number + 1),
        }
    }

    let mut out = String::new();
    for ((answer, library), names) in groups {
        let names = names.join(" ");
        match answer {
            "imitated" | "real" | "absent" => {}
            "computes" => writeln!(out, "computes! {{ {names} }}").expect("to a string"),
            "handle" => writeln!(out, "handle! {{ {names} }}").expect("to a string"),
            "refused" => {
                let status = REFUSALS
                    .iter()
                    .find_map(|&(name, status)| (name == library).then_some(status))
                    .unwrap_or_else(|| panic!("no refusal is known for `{library}`"));
                writeln!(out, "refused! {{ \"{library}\", {status}: {names} }}")
                    .expect("to a string");
            }
            _ => panic!("entry_points.txt: unknown answer `{answer}` for {names}"),
        }
    }
    let target = std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR");
    std::fs::write(Path::new(&target).join("table.rs"), out).expect("OUT_DIR can be written");
}
