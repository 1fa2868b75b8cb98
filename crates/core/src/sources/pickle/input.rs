//! The bytes of a pickle as they arrive: one chunk is at hand, and nothing of what lies behind it is
//! kept.

use std::io::{ErrorKind, Read};

use crate::sources::pickle::{Damage, Stop};

/// How much is asked for at once; it stays in the processor's cache.
const CHUNK: usize = 128 << 10;
/// How much of the beginning is kept, to say what a file is that is no pickle.
const HEAD: usize = 64;

/// A reader with what is at hand of it.
pub(super) struct Input<R> {
    reader: R,
    /// What is at hand begins at `at` and ends at `end`; the rest is room.
    buffer: Vec<u8>,
    at: usize,
    end: usize,
    /// The offset of the buffer's first byte in the whole.
    start: u64,
    head: Vec<u8>,
    /// The reader has no more, or cannot read on.
    ended: bool,
    failure: Option<String>,
}

impl<R: Read> Input<R> {
    pub(super) fn new(reader: R) -> Input<R> {
        let mut res = Input {
            reader,
            buffer: Vec::new(),
            at: 0,
            end: 0,
            start: 0,
            head: Vec::new(),
            ended: false,
            failure: None,
        };
        res.fill(HEAD);
        res.head = res.buffer[..res.end.min(HEAD)].to_vec();
        res
    }

    /// How many bytes were taken.
    #[inline]
    pub(super) fn offset(&self) -> u64 {
        self.start + self.at as u64
    }

    /// How the whole begins.
    pub(super) fn head(&self) -> &[u8] {
        &self.head
    }

    pub(super) fn take<const N: usize>(&mut self) -> Result<[u8; N], Stop> {
        self.fill_or_stop(N)?;
        let found = *self.at_hand().first_chunk::<N>().ok_or(Damage::CutOff)?;
        self.at += N;
        Ok(found)
    }

    /// The next `len` bytes. What a file only claims takes no memory: room is made as bytes arrive.
    pub(super) fn take_slice(&mut self, len: usize) -> Result<&[u8], Stop> {
        self.fill_or_stop(len)?;
        let from = self.at;
        self.at += len;
        Ok(&self.buffer[from..self.at])
    }

    /// The bytes up to the next line feed, which is taken as well.
    pub(super) fn take_line(&mut self) -> Result<&[u8], Stop> {
        let mut searched = 0;
        loop {
            let found = self.at_hand()[searched..].iter().position(|it| *it == b'\n');
            if let Some(more) = found {
                let from = self.at;
                let len = searched + more;
                self.at += len + 1;
                return Ok(&self.buffer[from..from + len]);
            }
            searched = self.at_hand().len();
            self.fill(searched + 1);
            if self.at_hand().len() == searched {
                return Err(self.cut_off());
            }
        }
    }

    /// What is at hand, and at least `len` bytes if there are as many.
    pub(super) fn peek(&mut self, len: usize) -> &[u8] {
        self.fill(len);
        self.at_hand()
    }

    /// What has arrived and was not taken.
    #[inline]
    pub(super) fn at_hand(&self) -> &[u8] {
        &self.buffer[self.at..self.end]
    }

    /// Takes `n` bytes of those at hand.
    #[inline]
    pub(super) fn advance(&mut self, n: usize) {
        self.at += n;
    }

    /// Reads on until `len` bytes are at hand.
    pub(super) fn fill_or_stop(&mut self, len: usize) -> Result<(), Stop> {
        self.fill(len);
        if self.at_hand().len() < len { Err(self.cut_off()) } else { Ok(()) }
    }

    fn cut_off(&self) -> Stop {
        match &self.failure {
            Some(why) => Damage::Unreadable(why.clone()).into(),
            None => Damage::CutOff.into(),
        }
    }

    /// Reads on until `len` bytes are at hand or there are no more.
    fn fill(&mut self, len: usize) {
        while self.end - self.at < len && !self.ended {
            if 0 < self.at {
                self.buffer.copy_within(self.at..self.end, 0);
                self.start += self.at as u64;
                self.end -= self.at;
                self.at = 0;
            }
            // Twice what has arrived, whatever `len` claims; and never a byte at a time, where a line's end is looked for.
            let room = (self.end * 2).clamp(CHUNK, CHUNK.saturating_add(len));
            if self.buffer.len() < room {
                self.buffer.resize(room, 0);
            }
            match self.reader.read(&mut self.buffer[self.end..]) {
                Ok(0) => self.ended = true,
                Ok(n) => self.end += n,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    self.failure = Some(error.to_string());
                    self.ended = true;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives three bytes at a time, and then what it is told to.
    struct Drip<'a>(&'a [u8], Option<&'static str>);

    impl Read for Drip<'_> {
        fn read(&mut self, room: &mut [u8]) -> std::io::Result<usize> {
            let n = self.0.len().min(3).min(room.len());
            room[..n].copy_from_slice(&self.0[..n]);
            self.0 = &self.0[n..];
            match self.1 {
                Some(why) if n == 0 => Err(std::io::Error::other(why)),
                _ => Ok(n),
            }
        }
    }

    #[test]
    fn bytes_come_out_as_they_went_in_however_they_arrive() {
        let mut input = Input::new(Drip(b"abcdefg\nhi", None));
        assert_eq!(input.take::<2>(), Ok(*b"ab"));
        assert_eq!(input.take_line(), Ok(&b"cdefg"[..]));
        assert_eq!(input.offset(), 8);
        assert_eq!(input.take_slice(3), Err(Stop::Damage(Damage::CutOff)));
        assert_eq!(input.take_line(), Err(Stop::Damage(Damage::CutOff)));
        assert_eq!(input.take_slice(2), Ok(&b"hi"[..]));
        assert_eq!((input.offset(), input.head()), (10, &b"abcdefg\nhi"[..]));
    }

    #[test]
    fn a_claim_takes_no_memory() {
        let mut input = Input::new(&[7_u8; 1000][..]);
        assert!(input.take_slice(usize::MAX).is_err());
        assert!(input.buffer.len() <= CHUNK);
    }

    #[test]
    fn a_reader_that_fails_says_why() {
        let mut input = Input::new(Drip(b"abc", Some("the disk is on fire")));
        assert_eq!(input.take::<3>(), Ok(*b"abc"));
        let why = "the disk is on fire".to_owned();
        assert_eq!(input.take::<1>(), Err(Stop::Damage(Damage::Unreadable(why))));
    }
}
