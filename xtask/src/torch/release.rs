//! The file of one release: what the tool read of it, and what people wrote down about trying it.

use std::{fs, path::PathBuf};

use anyhow::Context as _;
use regex_lite::Regex;
use serde_json::{Value, json};

use super::{place::root, wheels::Wheel};

/// Where the files are.
const FOLDER: &str = "agent/plimsoll_agent/releases";

/// What a wheel of torch says of itself and of what it needs.
pub(super) struct Release {
    /// `2.16`
    pub(super) release: String,
    /// `2.16.1`
    pub(super) wheel: String,
    /// `13.2`: what it is built for.
    pub(super) cuda: String,
    /// Exact versions of the wheels that it asks for.
    pub(super) cudnn: String,
    pub(super) nccl: String,
    pub(super) runtime: String,
}

impl Release {
    pub(super) fn of(torch: &Wheel) -> anyhow::Result<Release> {
        let says = torch.read_ending("torch/version.py")?;
        let of = |pattern: &str, text: &str| {
            let found = Regex::new(pattern).ok()?.captures(text)?;
            Some(found.get(1)?.as_str().to_owned())
        };
        let wheel =
            of(r"__version__ = '([\d.]+)", &says).context("torch/version.py names no version")?;
        let cuda = of(r"cuda[^=\n]*= '([\d.]+)'", &says)
            .context("this wheel is built without CUDA: name a Python for Linux on x86-64")?;
        let needs = torch.read_ending(".dist-info/METADATA")?;
        let asks = |pattern: &str| of(pattern, &needs);
        let release = wheel.split('.').take(2).collect::<Vec<_>>().join(".");
        Ok(Release {
            release,
            cudnn: asks(r"nvidia-cudnn-cu1\d ?\(?==([\d.]+)").context("it asks for no cuDNN")?,
            nccl: asks(r"nvidia-nccl-cu1\d ?\(?==([\d.]+)").unwrap_or_default(),
            // Since 2.11 by the package of all of CUDA, before by that of the runtime.
            runtime: asks(r"nvidia-cuda-runtime-cu1\d ?\(?==([\d.]+)")
                .or_else(|| {
                    asks(r"cuda-toolkit(?:\[[^\]]*\])? ?\(?==([\d.]+)").map(|it| minor_of(&it))
                })
                .unwrap_or_else(|| minor_of(&cuda)),
            wheel,
            cuda,
        })
    }

    fn major(&self) -> &str {
        self.cuda.split('.').next().unwrap_or_default()
    }

    pub(super) fn runtime_wheel(&self) -> String {
        match self.major() {
            "12" => "nvidia-cuda-runtime-cu12".to_owned(),
            _ => "nvidia-cuda-runtime".to_owned(),
        }
    }

    pub(super) fn cudnn_wheel(&self) -> String {
        format!("nvidia-cudnn-cu{}", self.major())
    }

    /// Writes what was found; what people wrote stays.
    pub(super) fn write(
        &self,
        gone: Vec<String>,
        examples: usize,
        layout: Option<String>,
    ) -> anyhow::Result<PathBuf> {
        let path = root().join(FOLDER).join(format!("{}.json", self.release));
        let before: Value = fs::read_to_string(&path)
            .ok()
            .and_then(|it| serde_json::from_str(&it).ok())
            .unwrap_or_default();
        let kept = |key: &str| {
            before.get(key).filter(|it| it.is_object()).cloned().unwrap_or_else(|| json!({}))
        };
        let it = json!({
            "release": self.release,
            "wheel": self.wheel,
            "cuda": self.cuda,
            "cudnn": self.cudnn,
            "nccl": self.nccl,
            "runtime": self.runtime,
            "cudnn_layout": layout,
            "fragments_gone": gone,
            "kernels_renamed": examples,
            "tried": kept("tried"),
            "compared": kept("compared"),
        });
        fs::write(&path, format!("{it:#}\n"))
            .with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }
}

/// `13.2.*` of 13.2.1: a wheel of the runtime has a last number of its own.
fn minor_of(version: &str) -> String {
    let two: Vec<&str> = version.split('.').take(2).collect();
    format!("{}.*", two.join("."))
}

/// All files, oldest release first.
pub(super) fn all() -> anyhow::Result<Vec<Value>> {
    let folder = root().join(FOLDER);
    let mut res = Vec::new();
    for entry in
        fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))?
    {
        let path = entry?.path();
        let text = fs::read_to_string(&path)?;
        let it: Value = serde_json::from_str(&text)
            .with_context(|| format!("{} is no JSON", path.display()))?;
        res.push(it);
    }
    res.sort_by_key(|it| number(it["release"].as_str().unwrap_or_default()));
    Ok(res)
}

/// 2.9 comes before 2.10.
fn number(release: &str) -> Vec<u32> {
    release.split('.').map(|it| it.parse().unwrap_or(0)).collect()
}

/// The newest release before this one whose runtime is known.
pub(super) fn before(release: &str) -> anyhow::Result<Option<Release>> {
    let found = all()?.into_iter().rfind(|entry| {
        entry["runtime"].is_string()
            && number(entry["release"].as_str().unwrap_or_default()) < number(release)
    });
    Ok(found.map(|entry| {
        let text = |key: &str| entry[key].as_str().unwrap_or_default().to_owned();
        Release {
            release: text("release"),
            wheel: text("wheel"),
            cuda: text("cuda"),
            cudnn: text("cudnn"),
            nccl: text("nccl"),
            runtime: text("runtime"),
        }
    }))
}

/// The library's version as people write it: `9.24` of 9.24.0.43.
pub(super) fn short(it: &Value) -> String {
    it.as_str().unwrap_or_default().split('.').take(2).collect::<Vec<_>>().join(".")
}
