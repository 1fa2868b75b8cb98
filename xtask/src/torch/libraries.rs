//! What torch's libraries want of CUDA, and what their kernels are called.

use std::{collections::BTreeSet, fs};

use anyhow::Context as _;
use object::{Object as _, ObjectSection as _, ObjectSymbol as _};
use regex_lite::Regex;

use super::place::root;

/// Beginnings of what is NVIDIA's, and of what stays the real library's: as `agent/plimsoll_agent/imports.py` has them.
const THEIRS: &str = r"^(?:__)?(?:cu|nv|nccl)[a-z]*[A-Z]";
const LEFT_ALONE: [&str; 7] =
    ["cuFile", "cupti", "cusparseLt", "nvrtc", "nvshmem", "nvJitLink", "nvtx"];
/// What `c10/cuda/driver_api.cpp` looks up by name.
pub(super) const BY_TORCH: &str = r"^(?:nvml|cu)[A-Z]\w+$";
/// Families of the driver: a bare `cu[A-Z]` would find other libraries' words in a text.
pub(super) const OF_THE_DRIVER: &str =
    r"^cu(?:Ctx|Mem|Device|Module|Launch|Func|Stream|Link|Library|Kernel|Occupancy)[A-Z]\w+$";

/// The table of `entry_points.txt`.
pub(super) struct Answers {
    names: BTreeSet<String>,
    imitated: BTreeSet<String>,
}

impl Answers {
    pub(super) fn read() -> anyhow::Result<Answers> {
        let text = fs::read_to_string(root().join("crates/phantom/entry_points.txt"))?;
        let mut res = Answers { names: BTreeSet::new(), imitated: BTreeSet::new() };
        for line in text.lines().filter(|it| !it.starts_with('#')) {
            if let [library, name, answer] = line.split_whitespace().collect::<Vec<_>>()[..] {
                res.names.insert(name.to_owned());
                if library == "cudart" && answer == "imitated" {
                    res.imitated.insert(name.to_owned());
                }
            }
        }
        Ok(res)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    /// Whether it is a function of CUDA's runtime with code of ours.
    pub(super) fn imitates(&self, name: &str) -> bool {
        self.imitated.contains(name)
    }
}

/// Adds the names of NVIDIA's functions that the library wants, and those that it has.
pub(super) fn symbols(
    bytes: &[u8],
    wanted: &mut BTreeSet<String>,
    defined: &mut BTreeSet<String>,
) -> anyhow::Result<()> {
    let theirs = Regex::new(THEIRS)?;
    let file = object::File::parse(bytes)?;
    for it in file.dynamic_symbols() {
        let Ok(name) = it.name() else { continue };
        if theirs.is_match(name) && !LEFT_ALONE.iter().any(|it| name.starts_with(it)) {
            let which = if it.is_undefined() { &mut *wanted } else { &mut *defined };
            which.insert(name.to_owned());
        }
    }
    Ok(())
}

/// The texts in a library that are names of this kind.
pub(super) fn looked_up(bytes: &[u8], pattern: &str) -> BTreeSet<String> {
    let Ok(pattern) = Regex::new(pattern) else { return BTreeSet::new() };
    let texts = bytes.split(|it| *it == 0).filter(|it| 4 < it.len() && it.len() < 64);
    let texts = texts.filter(|it| it.starts_with(b"cu") || it.starts_with(b"nv"));
    texts
        .filter_map(|it| std::str::from_utf8(it).ok())
        .filter(|it| pattern.is_match(it))
        .map(str::to_owned)
        .collect()
}

/// The mangled names that a library registers kernels by: in its constants.
pub(super) fn kernels(bytes: &[u8]) -> anyhow::Result<BTreeSet<String>> {
    let file = object::File::parse(bytes)?;
    let constants = file.section_by_name(".rodata").context("libtorch_cuda.so has no constants")?;
    let texts =
        constants.data()?.split(|it| *it == 0).filter(|it| it.starts_with(b"_Z") && 6 <= it.len());
    Ok(texts.filter_map(|it| std::str::from_utf8(it).ok()).map(str::to_owned).collect())
}

/// Fragments of `names.rs` that no kernel has (but those whose remark says where they are), and the names of the
/// list for Rust's tests that are not among them.
pub(super) fn names_that_are_gone(
    kernels: &BTreeSet<String>,
) -> anyhow::Result<(Vec<String>, Vec<String>)> {
    let values = root().join("crates/values");
    let text = fs::read_to_string(values.join("src/names.rs"))?;
    let fragment = Regex::new(r#"(?m)^    ([A-Z0-9_]+) = b"([^"]+)";$"#)?;
    let all = kernels.iter().map(String::as_str).collect::<Vec<_>>().join("\n");
    let gone = fragment.captures_iter(&text).filter(|it| !all.contains(&it[2]));
    let gone = gone.map(|it| format!("{} = {}", &it[1], &it[2])).collect();
    let list = fs::read_to_string(values.join("tests/kernels-2.11.txt"))?;
    let now: BTreeSet<String> = kernels.iter().map(|it| alike(it)).collect();
    let names = list.lines().filter_map(|it| it.split(' ').nth(1));
    Ok((gone, names.filter(|it| !now.contains(&alike(it))).map(str::to_owned).collect()))
}

/// A mangled name without what differs from build to build: hashes of files, lists of architectures, and all numbers.
fn alike(name: &str) -> String {
    const HASH: usize = 8;
    let mut res = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(c) = rest.chars().next() {
        let mark = ["_GLOBAL__N__", "_cu_"].into_iter().find(|it| rest.starts_with(it));
        if let Some(mark) = mark {
            res.push('_');
            rest = rest.get(mark.len() + HASH..).unwrap_or_default();
            continue;
        }
        if !(c.is_ascii_digit() || c == '_' && res.ends_with('_')) {
            res.push(c);
        }
        rest = &rest[c.len_utf8()..];
    }
    res
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_alike_whatever_the_build() {
        let of = |hash: &str, architectures: &str, width: u8| {
            alike(&format!(
                "_Z51_GLOBAL__N__{hash}_12_PowKernel_cu_{hash}4powTHRUST_3_SM_{architectures}_NSILi{width}E"
            ))
        };
        assert_eq!(of("b1108092", "750_800", 2), of("0badf00d", "750_800_1200", 4));
        assert_ne!(alike("_Z3powIaE"), alike("_Z3powIbE"));
    }
}
