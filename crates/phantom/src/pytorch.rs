//! Which PyTorch is in this process, as its folder's `version.py` says. Knows no CUDA function.

use std::path::Path;

/// The first two numbers of PyTorch's version and of the CUDA that it is built for; `None` if the program has no PyTorch, or not
/// yet.
pub(crate) fn versions() -> Option<[(u32, u32); 2]> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let library = maps.lines().find(|it| it.ends_with("/lib/libtorch_cuda.so"))?;
    let folder = Path::new(&library[library.find('/')?..]).parent()?.parent()?;
    versions_of(&std::fs::read_to_string(folder.join("version.py")).ok()?)
}

fn versions_of(text: &str) -> Option<[(u32, u32); 2]> {
    let of = |name: &str| {
        let line = text.lines().find(|it| it.starts_with(name))?;
        let mut numbers = line.split('=').nth(1)?.trim().trim_matches(['\'', '"']).split('.');
        Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
    };
    Some([of("__version__ = ")?, of("cuda: ").or_else(|| of("cuda = "))?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pytorch_says_its_version_in_a_file() {
        let text = "__version__ = '2.12.1+cu130'\ndebug = False\ncuda: Optional[str] = '13.0'\n";
        assert_eq!(versions_of(text), Some([(2, 12), (13, 0)]));
        assert_eq!(versions_of("__version__ = '2.12.1+cpu'\ncuda: Optional[str] = None\n"), None);
    }
}
