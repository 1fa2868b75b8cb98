//! The table of docs/pytorch-versions.md, from the files of the releases.

use std::fs;

use anyhow::Context as _;
use serde_json::Value;

use super::{
    place::root,
    release::{self, short},
};

const PAGE: &str = "docs/pytorch-versions.md";
const BEGIN: &str = "<!-- from agent/plimsoll_agent/releases by `cargo xtask torch` -->\n";
const END: &str = "<!-- end -->\n";

pub(super) fn write() -> anyhow::Result<()> {
    let path = root().join(PAGE);
    let text = fs::read_to_string(&path)?;
    let new = with_table(&text, &table(&release::all()?))?;
    if new != text {
        fs::write(&path, new)?;
        println!("wrote the table of {PAGE}");
    }
    Ok(())
}

fn with_table(page: &str, table: &str) -> anyhow::Result<String> {
    let marks = || {
        let (before, rest) = page.split_once(BEGIN)?;
        Some((before, rest.split_once(END)?.1))
    };
    let (before, after) =
        marks().with_context(|| format!("{PAGE} has lost the marks around its table"))?;
    Ok(format!("{before}{BEGIN}{table}{END}{after}"))
}

/// Newest first; a row for each build.
fn table(releases: &[Value]) -> String {
    let mut res = "| PyTorch | built for | cuDNN, NCCL | standing | tried with Python | compared with GPUs |\n\
                   |---|---|---|---|---|---|\n"
        .to_owned();
    for it in releases.iter().rev() {
        let builds = it["tried"].as_object().into_iter().flatten();
        let builds: Vec<(&String, &Value)> = builds.collect();
        for (cuda, pythons) in &builds {
            let compared = it["compared"].get(cuda.as_str());
            let standing = if compared.is_some() { "supported" } else { "experimental" };
            let pythons: Vec<&str> =
                pythons.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            let own = it["cuda"] == **cuda;
            let libraries = if own {
                format!("{}, {}", short(&it["cudnn"]), short(&it["nccl"]))
            } else {
                "of that build".to_owned()
            };
            let compared = compared.map_or("no".to_owned(), sentence);
            let name = it["release"].as_str().unwrap_or_default();
            res += &format!(
                "| {name} | CUDA {cuda} | {libraries} | {standing} | {} | {compared} |\n",
                pythons.join(", ")
            );
        }
        if builds.is_empty() {
            let name = it["release"].as_str().unwrap_or_default();
            let cuda = it["cuda"].as_str().unwrap_or_default();
            res += &format!(
                "| {name} | CUDA {cuda} | {}, {} | unknown | none | no |\n",
                short(&it["cudnn"]),
                short(&it["nccl"])
            );
        }
    }
    res
}

/// `yes: 45 programs on an NVIDIA H200, 43 to the byte, worst 0.10 %`
fn sentence(it: &Value) -> String {
    let on = it["gpu"].as_str().unwrap_or("a GPU");
    match (it["programs"].as_u64(), it["equal"].as_u64(), it["worst_percent"].as_f64()) {
        (Some(programs), Some(equal), Some(worst)) => {
            format!("{programs} programs on {on}: {equal} to the byte, worst {worst} %")
        }
        _ => format!("on {on} (`bench/RESULTS.md`)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_says_what_the_files_say() {
        let page = fs::read_to_string(root().join(PAGE)).expect("the page is there");
        let releases = release::all().expect("the files are JSON");
        assert!(8 < releases.len());
        let new = with_table(&page, &table(&releases)).expect("the marks are there");
        assert_eq!(new, page, "run `cargo xtask torch`");
    }

    #[test]
    fn the_replay_knows_the_newest() {
        let releases = release::all().expect("the files are JSON");
        let newest = releases.last().and_then(|it| it["release"].as_str().map(str::to_owned));
        assert_eq!(newest, Some(plimsoll_core::replay::TorchVersion::NEWEST.to_string()));
    }
}
