//! Durations as people write them: `500ms`, `30s`, `2m`, `1h`. Nothing is guessed: a bare number is an error.

use std::time::Duration;

/// The units that are understood, each with its length in milliseconds.
const UNITS: [(&str, u64); 4] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000)];

/// Reads a duration, or says how to write one.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    if number.is_empty() {
        return Err(format!(
            "'{text}' is not a duration; write 500ms, 30s, 2m or 1h"
        ));
    }
    if unit.is_empty() {
        return Err(format!(
            "'{text}' has no unit; write {number}ms, {number}s, {number}m or {number}h"
        ));
    }
    let Some(&(_, unit_ms)) = UNITS.iter().find(|(name, _)| *name == unit) else {
        return Err(format!(
            "'{unit}' is no unit of time here, and only whole numbers of one unit are read; write 500ms, 30s, 2m or 1h"
        ));
    };
    let too_long = || format!("'{text}' is longer than can be counted");
    let number: u64 = number.parse().map_err(|_| too_long())?;
    number
        .checked_mul(unit_ms)
        .map(Duration::from_millis)
        .ok_or_else(too_long)
}

/// Writes a duration in the largest unit that keeps it readable: `950ms`, `29.7s`, `2m05s`.
pub(crate) fn show(duration: Duration) -> String {
    let ms = duration.as_millis();
    match ms {
        0..1_000 => format!("{ms}ms"),
        1_000..60_000 => format!("{}.{}s", ms / 1_000, ms % 1_000 / 100),
        _ => format!("{}m{:02}s", ms / 60_000, ms % 60_000 / 1_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(input: &str, expected: Result<u64, &str>) {
        match (parse(input), expected) {
            (Ok(got), Ok(ms)) => assert_eq!(got, Duration::from_millis(ms), "{input}"),
            (Err(got), Err(part)) => assert!(got.contains(part), "{input}: {got}"),
            (got, _) => panic!("{input}: {got:?}"),
        }
    }

    #[test]
    fn durations_are_read_or_explained() {
        check("500ms", Ok(500));
        check("30s", Ok(30_000));
        check("2m", Ok(120_000));
        check("1h", Ok(3_600_000));
        check("0s", Ok(0));
        check("30", Err("write 30ms, 30s, 30m or 30h"));
        check("", Err("write 500ms"));
        check("s", Err("write 500ms"));
        check("-5s", Err("is not a duration"));
        check("1.5s", Err("whole numbers"));
        check("5 s", Err("no unit of time"));
        check("900us", Err("no unit of time"));
        check("٣s", Err("is not a duration"));
        check("18446744073709551616ms", Err("longer than can be counted"));
        check("18446744073709551615h", Err("longer than can be counted"));
        check("18446744073709551615ms", Ok(u64::MAX));
    }

    #[test]
    fn durations_are_shown_in_a_readable_unit() {
        assert_eq!(show(Duration::from_millis(950)), "950ms");
        assert_eq!(show(Duration::from_millis(29_712)), "29.7s");
        assert_eq!(show(Duration::from_millis(125_000)), "2m05s");
    }
}
