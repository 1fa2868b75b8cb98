//! What the script wrote, and what became of it.

use crate::units::Bytes;

/// All that a run wrote.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Writes {
    /// How it was kept apart from the user's files: `a mount namespace`, `a user namespace` or `tracing`. Empty: it was not.
    pub way: String,
    /// The folder that it was copied to.
    pub kept: Option<String>,
    /// What it might take on the disk.
    pub max: Bytes,
    /// Files, links and folders, sorted by path.
    pub files: Vec<WrittenFile>,
    /// Downloads among them that later runs find again: (path, length).
    pub downloads: Vec<(String, Bytes)>,
    /// Folders that it could not write to though a real run could, each with why.
    pub read_only: Vec<(String, String)>,
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrittenFile {
    /// Where the script saw it.
    pub path: String,
    /// `created`, `changed`, `deleted` or `renamed`.
    pub change: &'static str,
    /// Folders are counted apart: their files are what was written.
    pub is_folder: bool,
    /// Its length, holes included.
    pub bytes: Bytes,
}

impl Writes {
    /// Of a run that wrote into the user's files.
    pub fn through() -> Writes {
        Writes::default()
    }

    /// Whether it was kept apart.
    pub fn is_apart(&self) -> bool {
        !self.way.is_empty()
    }

    /// The bytes of all files together.
    pub fn bytes(&self) -> Bytes {
        self.files.iter().map(|it| it.bytes).sum()
    }

    /// What the report says; nothing if there is nothing to say.
    pub fn sentence(&self) -> Option<String> {
        if !self.is_apart() {
            return Some("the script wrote into your files (--writes through)".to_owned());
        }
        let is_gone = |it: &&WrittenFile| it.change == "deleted";
        let deleted = self.files.iter().filter(is_gone).count();
        let files = self.files.iter().filter(|it| !it.is_folder && !is_gone(it)).count();
        let mut res = match (files, deleted) {
            (0, 0) => return None,
            (0, n) => format!("{} deleted by the script {} still there", count(n), are(n)),
            (n, _) => {
                let were = if n == 1 { "was" } else { "were" };
                let fate = match &self.kept {
                    Some(folder) => {
                        let they = if n == 1 { "it is" } else { "they are" };
                        format!("; {they} saved in {folder}, and your files are unchanged")
                    }
                    None => " and thrown away".to_owned(),
                };
                format!("{}, {}, {were} written{fate}", count(n), self.bytes())
            }
        };
        if let (1.., n @ 1..) = (files, deleted) {
            res += &format!("; {} that it deleted {} still there", count(n), are(n));
        }
        if let n @ 1.. = self.downloads.len() {
            let (downloads, are) = if n == 1 { ("download", "is") } else { ("downloads", "are") };
            let bytes: Bytes = self.downloads.iter().map(|it| it.1).sum();
            res += &format!("; {n} {downloads}, {bytes}, {are} in plimsoll's cache for later runs");
        }
        Some(res)
    }
}

fn count(n: usize) -> String {
    if n == 1 { "1 file".to_owned() } else { format!("{n} files") }
}

fn are(n: usize) -> &'static str {
    if n == 1 { "is" } else { "are" }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writes(files: &[(&'static str, u64)]) -> Writes {
        let file = |(change, bytes): &(&'static str, u64)| WrittenFile {
            path: "/home/me/out/model.pt".to_owned(),
            change,
            is_folder: false,
            bytes: Bytes(*bytes),
        };
        let way = "a mount namespace".to_owned();
        Writes { way, files: files.iter().map(file).collect(), ..Writes::default() }
    }

    #[test]
    fn one_sentence_says_what_became_of_it() {
        let said = |files: &[(&'static str, u64)]| writes(files).sentence().unwrap_or_default();
        assert_eq!(said(&[]), "");
        assert_eq!(said(&[("created", 1 << 20)]), "1 file, 1.0 MiB, was written and thrown away");
        assert_eq!(
            said(&[("changed", 1 << 30), ("created", 1 << 30), ("deleted", 0)]),
            "2 files, 2.00 GiB, were written and thrown away; 1 file that it deleted is still there"
        );
        assert_eq!(
            said(&[("deleted", 0), ("deleted", 0)]),
            "2 files deleted by the script are still there"
        );
        let downloads = vec![("/home/me/.cache/blob".to_owned(), Bytes(2 << 20))];
        let with_download = Writes { downloads, ..writes(&[("created", 2 << 20)]) };
        assert_eq!(
            with_download.sentence().unwrap_or_default(),
            "1 file, 2.0 MiB, was written and thrown away; 1 download, 2.0 MiB, is in plimsoll's cache for later runs"
        );
        let kept =
            Writes { kept: Some("out".to_owned()), ..writes(&[("created", 0), ("changed", 512)]) };
        assert_eq!(
            kept.sentence().unwrap_or_default(),
            "2 files, 512 B, were written; they are saved in out, and your files are unchanged"
        );
    }
}
