//! The page that torch's `_memory_viz.py` writes (`trace_plot`, `segment_plot`): a pickle in base64,
//! inside a script.

use std::io::{self, ErrorKind, Read};

use base64::{engine::general_purpose::STANDARD, read::DecoderReader};

/// What stands before the pickle.
const MARK: &[u8] = b"\"base64\": \"";

/// Whether `head` begins such a page.
pub(super) fn is_page(head: &[u8]) -> bool {
    let first = head.iter().find(|it| !it.is_ascii_whitespace());
    first == Some(&b'<') && head.windows(MARK.len()).any(|it| it == MARK)
}

/// The pickle inside the page.
pub(super) fn pickle(page: impl Read) -> impl Read {
    DecoderReader::new(Quoted { page, matched: 0, ended: false }, &STANDARD)
}

/// What stands between the mark and the quote after it.
struct Quoted<R> {
    page: R,
    /// How much of the mark was seen.
    matched: usize,
    ended: bool,
}

impl<R: Read> Read for Quoted<R> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        while !self.ended && !room.is_empty() {
            let n = match self.page.read(room) {
                Ok(n) => n,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if n == 0 {
                break;
            }
            let mut from = 0;
            while self.matched < MARK.len() && from < n {
                // No proper beginning of the mark ends in its first byte but the mark's whole.
                let is_next = room[from] == MARK[self.matched];
                self.matched = match is_next {
                    true => self.matched + 1,
                    false => usize::from(room[from] == MARK[0]),
                };
                from += 1;
            }
            if self.matched < MARK.len() || from == n {
                continue;
            }
            let len = room[from..n].iter().position(|it| *it == b'"');
            self.ended = len.is_some();
            let len = len.unwrap_or(n - from);
            room.copy_within(from..from + len, 0);
            if 0 < len {
                return Ok(len);
            }
        }
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pickle_is_found_wherever_the_page_has_it() {
        let page = br#" <html> "" "base "base64": "gAR9Lg=="}] and "base64": "AAAA""#;
        assert!(is_page(page));
        assert!(!is_page(b"<html>"));
        for at_once in 1..20 {
            let mut found = Vec::new();
            let slow =
                page.chunks(at_once).fold(Box::new(io::empty()) as Box<dyn Read>, |it, chunk| {
                    Box::new(it.chain(chunk))
                });
            pickle(slow).read_to_end(&mut found).unwrap();
            assert_eq!(found, b"\x80\x04}.");
        }
    }
}
