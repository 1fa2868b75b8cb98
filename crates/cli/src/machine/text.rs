//! Texts that somebody else wrote, made fit for a terminal and for labels.

/// At most `most` characters of `text`, without those that a terminal would obey or that write from right to left.
pub(super) fn plain(text: &str, most: usize) -> String {
    let is_plain = |it: &char| {
        !it.is_control()
            && !matches!(it, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
    };
    let mut res: String = text.chars().filter(is_plain).take(most + 1).collect();
    if most < res.chars().count() {
        res = res.chars().take(most.saturating_sub(1)).collect::<String>() + "…";
    }
    res
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_reaches_the_terminal_that_it_obeys() {
        assert_eq!(plain("a\x1b[31mb\n\u{202e}c", 20), "a[31mbc");
        assert_eq!(plain("train.py", 8), "train.py");
        assert_eq!(plain("training.py", 8), "trainin…");
    }
}
