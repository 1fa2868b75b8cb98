//! A size on the command line. A small bare number is refused: people who type `24` mean GiB, not bytes. A large one is bytes, as
//! programs write them.

use plimsoll_core::units::Bytes;

/// A number below this is meant in GiB: no card has more.
const MOST_GIB: u64 = 512;
/// A number below this is meant in MiB.
const MOST_MIB: u64 = 1 << 20;

/// The size. Errors: no size, or a number below 2^20 other than 0 without a unit, with the size that was probably meant.
pub(crate) fn size(given: &str) -> Result<Bytes, String> {
    let bytes: Bytes = given.parse().map_err(|error| format!("{error}"))?;
    let number = given.trim();
    let has_unit = number.ends_with(char::is_alphabetic);
    let unit = match bytes.0 {
        _ if has_unit => return Ok(bytes),
        0 if number.chars().all(|digit| digit == '0') => return Ok(bytes),
        0..MOST_GIB => "GiB",
        MOST_GIB..MOST_MIB => "MiB",
        _ => return Ok(bytes),
    };
    Err(format!("{number} has no unit; did you mean {number}{unit}? (bytes have the unit `B`)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_without_a_unit_is_asked_for_one() {
        let why = |given: &str| size(given).unwrap_err();
        assert_eq!(why("12"), "12 has no unit; did you mean 12GiB? (bytes have the unit `B`)");
        assert_eq!(why("1.5"), "1.5 has no unit; did you mean 1.5GiB? (bytes have the unit `B`)");
        assert_eq!(why("0.5"), "0.5 has no unit; did you mean 0.5GiB? (bytes have the unit `B`)");
        assert!(why(" 8000 ").contains("did you mean 8000MiB?"));
        assert!(why("much").starts_with("cannot read \"much\" as a size"));
    }

    #[test]
    fn a_size_with_its_unit_is_read() {
        assert_eq!(size("12GiB"), Ok(Bytes::gib(12)));
        assert_eq!(size("12 g"), Ok(Bytes::gib(12)));
        assert_eq!(size("1024B"), Ok(Bytes::kib(1)));
        assert_eq!(size("0"), Ok(Bytes::ZERO));
        assert_eq!(size("25769803776"), Ok(Bytes::gib(24)));
    }
}
