//! [`Bytes`]: an amount of memory that carries its unit. It knows no word of any other module.

use std::{
    fmt,
    iter::Sum,
    ops::{Add, AddAssign, Mul, Sub, SubAssign},
    str::FromStr,
};

/// An amount of memory.
///
/// Prints in binary units with one decimal (`20.0 MiB`), two from 1 GiB on (`23.65 GiB`, as CUDA's
/// own messages do); `{:#}` prints the exact count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

impl Bytes {
    /// Nothing.
    pub const ZERO: Bytes = Bytes(0);

    /// `n` KiB.
    pub const fn kib(n: u64) -> Bytes {
        Bytes(n << 10)
    }

    /// `n` MiB.
    pub const fn mib(n: u64) -> Bytes {
        Bytes(n << 20)
    }

    /// `n` GiB.
    pub const fn gib(n: u64) -> Bytes {
        Bytes(n << 30)
    }

    /// The smallest multiple of `unit` that is not less than `self`; the largest count there is
    /// when that multiple does not fit.
    pub const fn round_up_to(self, unit: Bytes) -> Bytes {
        Bytes(self.0.div_ceil(unit.0).saturating_mul(unit.0))
    }

    /// `self` without `other`, and nothing when `other` is more.
    pub const fn saturating_sub(self, other: Bytes) -> Bytes {
        Bytes(self.0.saturating_sub(other.0))
    }

    /// `self` as a share of `whole`, from 0 to 1; 0 when `whole` is nothing.
    #[expect(clippy::cast_precision_loss, reason = "a share is for reading, not for arithmetic")]
    pub fn share_of(self, whole: Bytes) -> f64 {
        if whole == Bytes::ZERO { 0.0 } else { self.0 as f64 / whole.0 as f64 }
    }
}

impl fmt::Display for Bytes {
    #[expect(clippy::cast_precision_loss, reason = "two decimals are shown")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if f.alternate() {
            return write!(f, "{} bytes", self.0);
        }
        let text = if Bytes::gib(1) <= *self {
            format!("{:.2} GiB", self.0 as f64 / Bytes::gib(1).0 as f64)
        } else if Bytes::mib(1) <= *self {
            format!("{:.1} MiB", self.0 as f64 / Bytes::mib(1).0 as f64)
        } else if Bytes::kib(1) <= *self {
            format!("{:.1} KiB", self.0 as f64 / Bytes::kib(1).0 as f64)
        } else {
            format!("{} B", self.0)
        };
        f.pad(&text)
    }
}

/// A size that [`Bytes::from_str`] could not read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "cannot read {given:?} as a size: expected a number and a unit, as in `22GiB`, `20GB` or `512MiB`"
)]
pub struct ParseBytesError {
    /// What was given.
    pub given: String,
}

impl FromStr for Bytes {
    type Err = ParseBytesError;

    /// Reads what people type: `22GiB`, `20GB`, `512MiB`, `1.5g`, `800 mb`, `1024`.
    ///
    /// `KiB`, `MiB`, ... and the bare letters `k`, `m`, `g`, `t` (as in Slurm, Docker and Java) are
    /// powers of 1024; `kB`, `MB`, `GB`, `TB` are powers of 1000, as the standard says. Reading a
    /// limit given in GB as the smaller of the two never promises memory that is not there.
    fn from_str(given: &str) -> Result<Bytes, ParseBytesError> {
        let error = || ParseBytesError { given: given.to_owned() };
        let text = given.trim();
        let is_number = |c: char| c.is_ascii_digit() || c == '.' || c == '_';
        let unit_at = text.find(|c| !is_number(c)).unwrap_or(text.len());
        let (number, unit) = text.split_at(unit_at);
        let number = number.replace('_', "");
        let scale: u64 = match unit.trim().to_ascii_lowercase().as_str() {
            "" | "b" | "byte" | "bytes" => 1,
            "k" | "ki" | "kib" => 1 << 10,
            "m" | "mi" | "mib" => 1 << 20,
            "g" | "gi" | "gib" => 1 << 30,
            "t" | "ti" | "tib" => 1 << 40,
            "kb" => 1_000,
            "mb" => 1_000_000,
            "gb" => 1_000_000_000,
            "tb" => 1_000_000_000_000,
            _ => return Err(error()),
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((&number, ""));
        if fraction.contains('.') || (whole.is_empty() && fraction.is_empty()) {
            return Err(error());
        }
        // In integers, so that a size never depends on how a float rounds: nine decimals of the
        // largest unit are finer than a byte of any size that a card has.
        let fraction = &fraction[..fraction.len().min(9)];
        let digits = |it: &str| if it.is_empty() { Ok(0) } else { it.parse::<u64>() };
        let whole = digits(whole).map_err(|_| error())?;
        let part = digits(fraction).map_err(|_| error())?;
        let unit_of_part = 10_u128.pow(u32::try_from(fraction.len()).map_err(|_| error())?);
        let part = u128::from(part) * u128::from(scale) / unit_of_part;
        let bytes = u128::from(whole) * u128::from(scale) + part;
        u64::try_from(bytes).map(Bytes).map_err(|_| error())
    }
}

impl Add for Bytes {
    type Output = Bytes;
    /// Saturates: a recording may claim anything, and a sum of claims is no reason to stop.
    fn add(self, other: Bytes) -> Bytes {
        Bytes(self.0.saturating_add(other.0))
    }
}

impl Sub for Bytes {
    type Output = Bytes;
    /// `other` is at most `self`; see [`Bytes::saturating_sub`] where it need not be.
    fn sub(self, other: Bytes) -> Bytes {
        debug_assert!(other <= self, "{self:#} - {other:#}");
        self.saturating_sub(other)
    }
}

impl Mul<u64> for Bytes {
    type Output = Bytes;
    fn mul(self, n: u64) -> Bytes {
        Bytes(self.0.saturating_mul(n))
    }
}

impl AddAssign for Bytes {
    fn add_assign(&mut self, other: Bytes) {
        *self = *self + other;
    }
}

impl SubAssign for Bytes {
    fn sub_assign(&mut self, other: Bytes) {
        *self = *self - other;
    }
}

impl Sum for Bytes {
    fn sum<I: Iterator<Item = Bytes>>(sizes: I) -> Bytes {
        sizes.fold(Bytes::ZERO, Add::add)
    }
}

/// A share of 1 as percent; what is there but rounds to nothing says so.
pub fn percent(share: f64) -> String {
    if 0.0 < share && share < 0.005 { "<1 %".to_owned() } else { format!("{:.0} %", share * 100.0) }
}

/// A difference as people read it: `+1.5 MiB`, `-3 B`, `0 B`.
pub fn signed(change: i128) -> String {
    let bytes = Bytes(u64::try_from(change.unsigned_abs()).unwrap_or(u64::MAX));
    match change {
        0 => bytes.to_string(),
        1.. => format!("+{bytes}"),
        _ => format!("-{bytes}"),
    }
}

/// A change as people read it: `+208.0 MiB, +75.9 %`, `+2.00 GiB, 5.0x`, `+800.0 KiB`, `new` or `gone`. What became more than ten times as
/// much was next to nothing, and what changed by less than 0.1 % hardly changed: only the bytes say something then.
#[expect(clippy::cast_precision_loss, reason = "one decimal is shown")]
pub fn change(was: Bytes, is: Bytes) -> String {
    const MOST: f64 = 10.0;
    if was == is {
        return "unchanged".to_owned();
    }
    if was == Bytes::ZERO {
        return "new".to_owned();
    }
    if is == Bytes::ZERO {
        return "gone".to_owned();
    }
    let bytes = signed(i128::from(is.0) - i128::from(was.0));
    let factor = is.0 as f64 / was.0 as f64;
    match format!("{:+.1} %", (factor - 1.0) * 100.0).as_str() {
        "+0.0 %" | "-0.0 %" => bytes,
        "+100.0 %" => format!("{bytes}, 2.0x"),
        percent if factor < 2.0 => format!("{bytes}, {percent}"),
        _ if factor <= MOST => format!("{bytes}, {factor:.1}x"),
        _ => bytes,
    }
}

/// How often: `once`, `twice`, `3 times`.
pub fn times(n: u64) -> String {
    match n {
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        n => format!("{} times", grouped(n)),
    }
}

/// A number as people read it: 2,850.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut res = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at != 0 && (digits.len() - at).is_multiple_of(3) {
            res.push(',');
        }
        res.push(digit);
    }
    res
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_the_largest_unit_that_fits() {
        assert_eq!(Bytes(512).to_string(), "512 B");
        assert_eq!(Bytes::kib(1).to_string(), "1.0 KiB");
        assert_eq!((Bytes::mib(20) + Bytes::kib(512)).to_string(), "20.5 MiB");
        assert_eq!(Bytes(25_393_692_672).to_string(), "23.65 GiB");
        assert_eq!(format!("{:#}", Bytes::mib(1)), "1048576 bytes");
        assert_eq!(format!("{:>10}|{:<10}|", Bytes::mib(1), Bytes(7)), "   1.0 MiB|7 B       |");
    }

    #[test]
    fn a_change_is_bytes_and_a_percentage_only_of_something() {
        for (was, is, said) in [
            (Bytes::mib(400), Bytes::mib(300), "-100.0 MiB, -25.0 %"),
            (Bytes::mib(100), Bytes::mib(175), "+75.0 MiB, +75.0 %"),
            (Bytes::mib(128), Bytes::mib(256), "+128.0 MiB, 2.0x"),
            (Bytes::gib(1), Bytes::gib(10), "+9.00 GiB, 10.0x"),
            (Bytes(100), Bytes::kib(800), "+799.9 KiB"),
            (Bytes::kib(800), Bytes(100), "-799.9 KiB, -100.0 %"),
            (Bytes::gib(10), Bytes(Bytes::gib(10).0 + 512), "+512 B"),
            (Bytes::ZERO, Bytes::mib(1), "new"),
            (Bytes::mib(1), Bytes::ZERO, "gone"),
            (Bytes::mib(1), Bytes::mib(1), "unchanged"),
            (Bytes(1), Bytes(u64::MAX), "+17179869184.00 GiB"),
        ] {
            assert_eq!(change(was, is), said, "{was} to {is}");
        }
        // Whatever is given, a percentage is at most of three digits, and never of nothing.
        for (was, is) in (0..64).flat_map(|was| (0..64).map(move |is| (1 << was, 1 << is))) {
            let said = change(Bytes(was), Bytes(is));
            let number = said.split_once(", ").map(|it| it.1.trim_end_matches([' ', '%', 'x']));
            let number = number.map_or(0.0, |it| it.parse::<f64>().unwrap());
            assert!(number.abs() <= 100.0, "{said}");
        }
    }

    #[test]
    fn reads_what_people_type() {
        let read = |it: &str| it.parse::<Bytes>().map(|it| it.0);
        assert_eq!(read("22GiB"), Ok(22 << 30));
        assert_eq!(read("20GB"), Ok(20_000_000_000));
        assert_eq!(read("512MiB"), Ok(512 << 20));
        assert_eq!(read("1.5g"), Ok(3 << 29));
        assert_eq!(read(" 800 mb "), Ok(800_000_000));
        assert_eq!(read("80Gi"), Ok(80 << 30));
        assert_eq!(read(".5MiB"), Ok(1 << 19));
        assert_eq!(read("1_048_576"), Ok(1 << 20));
        assert_eq!(read("0"), Ok(0));
        assert_eq!(read("23.65GiB"), Ok(25_393_994_137));
    }

    #[test]
    fn says_what_it_expected() {
        for wrong in ["", "GiB", "twenty", "20XB", "1.2.3g", ".", "-1GiB", "99999999999TiB"] {
            assert!(wrong.parse::<Bytes>().is_err(), "{wrong:?}");
        }
        let error = "20 gigs".parse::<Bytes>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot read \"20 gigs\" as a size: expected a number and a unit, as in `22GiB`, `20GB` or `512MiB`"
        );
    }
}
