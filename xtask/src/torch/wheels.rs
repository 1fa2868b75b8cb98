//! Wheels from a registry, through pip, and the files in them.

use std::{
    fs,
    io::Read as _,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, bail};

/// Where wheels are put, and whose pip puts them there.
pub(super) struct Wheels {
    pub(super) folder: PathBuf,
    pub(super) python: String,
}

/// One wheel on the disk.
pub(super) struct Wheel {
    path: PathBuf,
}

impl Wheels {
    /// The wheel of `name` in `version` (which may end with `.*`), for this kind of machine; nothing that it needs.
    pub(super) fn fetch(&self, name: &str, version: &str) -> anyhow::Result<Wheel> {
        let into = self.folder.join(format!("{name}-{}", version.trim_end_matches(".*")));
        fs::create_dir_all(&into).with_context(|| format!("cannot make {}", into.display()))?;
        let wanted = format!("{name}=={version}");
        let ran = Command::new(&self.python)
            .args(["-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"])
            .args(["--disable-pip-version-check", "--dest"])
            .arg(&into)
            .arg(&wanted)
            .output()
            .with_context(|| format!("cannot run {}", self.python))?;
        if !ran.status.success() {
            bail!("pip has no wheel of {wanted}: {}", String::from_utf8_lossy(&ran.stderr).trim());
        }
        let mut wheels: Vec<PathBuf> = fs::read_dir(&into)?.flatten().map(|it| it.path()).collect();
        wheels.retain(|it| it.extension().is_some_and(|it| it == "whl"));
        match wheels.pop() {
            Some(path) if wheels.is_empty() => Ok(Wheel { path }),
            _ => bail!("{} should have one wheel after pip's download", into.display()),
        }
    }
}

impl Wheel {
    pub(super) fn name(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    fn open(&self) -> anyhow::Result<zip::ZipArchive<fs::File>> {
        let file = fs::File::open(&self.path)
            .with_context(|| format!("cannot read {}", self.path.display()))?;
        zip::ZipArchive::new(file).with_context(|| format!("{} is no wheel", self.path.display()))
    }

    pub(super) fn names(&self) -> Vec<String> {
        let archive = self.open();
        archive
            .map(|it| it.file_names().flatten().map(|it| it.into_owned()).collect())
            .unwrap_or_default()
    }

    pub(super) fn read(&self, name: &str) -> anyhow::Result<Vec<u8>> {
        let mut archive = self.open()?;
        let mut file =
            archive.by_name(name).with_context(|| format!("{} has no {name}", self.name()))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// The one file whose name ends so.
    pub(super) fn read_ending(&self, end: &str) -> anyhow::Result<String> {
        let name = self.names().into_iter().find(|it| it.ends_with(end));
        let name = name.with_context(|| format!("{} has no file *{end}", self.name()))?;
        Ok(String::from_utf8_lossy(&self.read(&name)?).into_owned())
    }

    /// Puts the files below `inside` into `folder`, without their folders.
    pub(super) fn unpack(&self, inside: &str, folder: &Path) -> anyhow::Result<()> {
        fs::create_dir_all(folder)?;
        for name in self.names().into_iter().filter(|it| it.starts_with(inside)) {
            let Some(last) = name.rsplit('/').next().filter(|it| !it.is_empty()) else { continue };
            fs::write(folder.join(last), self.read(&name)?)?;
        }
        Ok(())
    }
}
