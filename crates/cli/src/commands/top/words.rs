//! Numbers as short as a column of a table wants them.

use plimsoll_core::units::Bytes;

use crate::gpu::machine::snapshot::End;

/// `41.2G`, `512M`, `0`: units of 1024, three digits.
#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
pub(super) fn size(it: Bytes) -> String {
    let units = ["", "K", "M", "G", "T", "P", "E"];
    let mut value = it.0 as f64;
    let mut unit = 0;
    // 1023.6 M is 1.0 G: what is shown has at most three digits before the point.
    while 999.5 <= value && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 || 99.95 <= value {
        format!("{value:.0}{}", units[unit])
    } else {
        format!("{value:.1}{}", units[unit])
    }
}

/// By how much something changes: `+3.0M`, `-12K`, `0`.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bytes are whole")]
pub(super) fn change(bytes: f64) -> String {
    let amount = size(Bytes(bytes.abs().round() as u64));
    match bytes {
        it if it <= -0.5 => format!("-{amount}"),
        it if 0.5 <= it => format!("+{amount}"),
        _ => "0".to_owned(),
    }
}

/// How long until the end: `43 min`, or `12k steps` where nobody knows how long a step takes.
pub(super) fn end(it: End) -> String {
    match it {
        End::Never => "steady".to_owned(),
        End::In { seconds: Some(seconds), .. } => duration(seconds),
        End::In { steps, .. } => format!("{} st", count(steps)),
    }
}

/// `12`, `12k`, `3.4M`.
pub(super) fn count(it: f64) -> String {
    match it {
        it if it < 1e4 => format!("{it:.0}"),
        it if it < 1e6 => format!("{:.0}k", it / 1e3),
        it if it < 1e9 => format!("{:.1}M", it / 1e6),
        _ => "many".to_owned(),
    }
}

/// `45 s`, `43 min`, `5.2 h`, `12 d`.
pub(super) fn duration(seconds: f64) -> String {
    match seconds {
        it if it < 99.5 => format!("{it:.0} s"),
        it if it < 99.5 * 60.0 => format!("{:.0} min", it / 60.0),
        it if it < 48.0 * 3600.0 => format!("{:.1} h", it / 3600.0),
        it if it < 999.0 * 86400.0 => format!("{:.0} d", it / 86400.0),
        _ => "years".to_owned(),
    }
}

/// The time of day in UTC.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "seconds since 1970")]
pub(super) fn clock(at: f64) -> String {
    let seconds = at as u64 % 86400;
    format!("{:02}:{:02}:{:02} UTC", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits() {
        let sizes = [0, 999, 1000, 1 << 20, 999 << 20, 1000 << 20, 42 << 30, 640 << 30, u64::MAX];
        let told: Vec<String> = sizes.iter().map(|it| size(Bytes(*it))).collect();
        assert_eq!(told, ["0", "999", "1.0K", "1.0M", "999M", "1.0G", "42.0G", "640G", "16.0E"]);
        let told: Vec<String> = [3e6, -12e3, 0.2, -0.2].into_iter().map(change).collect();
        assert_eq!(told, ["+2.9M", "-11.7K", "0", "0"]);
        let told: Vec<String> =
            [3.0, 99.0, 3000.0, 2e4, 1e6, 1e12].into_iter().map(duration).collect();
        assert_eq!(told, ["3 s", "99 s", "50 min", "5.6 h", "12 d", "years"]);
        let told: Vec<String> = [12.0, 12345.0, 3.4e6, 1e12].into_iter().map(count).collect();
        assert_eq!(told, ["12", "12k", "3.4M", "many"]);
        assert_eq!(clock(1_790_000_000.5), "14:13:20 UTC");
    }
}
