//! Small pieces of text for people: `key: value` pages, ages, sizes.

use model::Timestamp;

/// Aligned `key: value` lines. A value of several lines is indented under its key.
pub fn pairs(pairs: &[(String, String)]) -> String {
    let width = pairs.iter().map(|(key, _)| key.chars().count()).max().unwrap_or(0) + 2;
    let mut text = String::new();
    for (key, value) in pairs.iter().filter(|(_, value)| !value.is_empty()) {
        let label = format!("{key}:");
        let indent = format!("\n{}", " ".repeat(width));
        text += &format!("{label:<width$}{}\n", value.trim_end().replace('\n', &indent));
    }
    text
}

/// A pair, for building a page.
pub fn pair(key: &str, value: impl ToString) -> (String, String) {
    (key.to_owned(), value.to_string())
}

/// A pair that is left out when there is no value.
pub fn pair_some<T: ToString>(key: &str, value: Option<T>) -> (String, String) {
    (key.to_owned(), value.map(|v| v.to_string()).unwrap_or_default())
}

pub fn now() -> Timestamp {
    Timestamp(jiff::Timestamp::now().as_microsecond())
}

/// How long ago, in one unit: `5s`, `3m`, `2h`, `9d`.
pub fn age(at: Timestamp, now: Timestamp) -> String {
    let seconds = now.ms_since(at).max(0) / 1000;
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m", seconds / 60),
        3_600..86_400 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// The age as of now.
pub fn age_now(at: Timestamp) -> String {
    age(at, now())
}

/// Local time without the date, for lines that follow each other.
pub fn clock(at: Timestamp) -> String {
    match jiff::Timestamp::from_microsecond(at.0) {
        Ok(time) => time.to_zoned(jiff::tz::TimeZone::system()).strftime("%H:%M:%S").to_string(),
        Err(_) => at.to_string(),
    }
}

/// Bytes in the largest unit that keeps three digits, for reading, not for counting.
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes}B") } else { format!("{value:.1}{}", UNITS[unit]) }
}

/// `1 instance`, `2 instances`.
pub fn plural(count: u64, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

/// `k=v,k=v`.
pub fn labels<'a>(labels: impl IntoIterator<Item = (&'a String, &'a String)>) -> String {
    labels.into_iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
}

/// Words as a shell would read them back.
pub fn command(words: &[String]) -> String {
    let plain = |word: &String| {
        !word.is_empty() && word.chars().all(|c| c.is_alphanumeric() || "-_./=:,@%+".contains(c))
    };
    let quoted =
        |word: &String| if plain(word) { word.clone() } else { format!("'{}'", word.replace('\'', "'\\''")) };
    words.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_have_one_unit() {
        for (seconds, text) in
            [(0, "0s"), (59, "59s"), (60, "1m"), (7_200, "2h"), (200_000, "2d"), (-5, "0s")]
        {
            assert_eq!(age(Timestamp(0), Timestamp(seconds * 1_000_000)), text);
        }
    }

    #[test]
    fn sizes_are_short() {
        for (bytes, text) in [(0, "0B"), (1023, "1023B"), (1536, "1.5KiB"), (64 << 20, "64.0MiB")] {
            assert_eq!(size(bytes), text);
        }
    }

    #[test]
    fn a_page_is_aligned_and_leaves_out_what_is_not_there() {
        let page = [pair("name", "web"), pair_some::<u8>("exit code", None), pair("message", "a\nb")];
        assert_eq!(pairs(&page), "name:      web\nmessage:   a\n           b\n");
    }

    #[test]
    fn a_command_can_be_pasted() {
        let words = ["sh", "-c", "echo 'a b'", ""].map(str::to_owned);
        assert_eq!(command(&words), r#"sh -c 'echo '\''a b'\''' ''"#);
    }
}
