//! `--worst-size`: height and width of the images in the worst batch, by which a run is judged.

use std::{fmt, num::NonZeroU16, str::FromStr};

use crate::contract::{self, Setting};

/// How large every image is made, in pixels. No format of pictures that people train on has longer sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WorstSize {
    height: NonZeroU16,
    width: NonZeroU16,
}

impl WorstSize {
    /// As the agent reads it.
    pub(crate) fn setting(self) -> Setting {
        (contract::IMAGE_SIZE, self.to_string().into())
    }
}

impl fmt::Display for WorstSize {
    /// As the user writes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.height, self.width)
    }
}

impl FromStr for WorstSize {
    type Err = String;

    fn from_str(given: &str) -> Result<WorstSize, String> {
        let side = |text: &str| {
            text.parse().map_err(|_| {
                "expected height and width in pixels, each from 1 to 65535, as in `800x1333`, or one number for both"
                    .to_owned()
            })
        };
        let (height, width) = given.split_once('x').unwrap_or((given, given));
        Ok(WorstSize { height: side(height)?, width: side(width)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_number_is_height_and_width() {
        let shown = |it: &str| it.parse().map(|it: WorstSize| it.to_string());
        assert_eq!(shown("800x1333").as_deref(), Ok("800x1333"));
        assert_eq!(shown("512").as_deref(), Ok("512x512"));
        for wrong in ["0x512", "", "x", "800x", "-3", "1e3", "70000", "3x800x1333"] {
            let error = shown(wrong).unwrap_err();
            assert!(error.starts_with("expected height and width"), "{wrong}: {error}");
        }
    }
}
