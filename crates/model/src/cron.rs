//! Times that repeat, in the five fields of cron.

use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;

use crate::error::{Error, Result, shown};
use crate::time::Timestamp;
use crate::workload::SCHEDULE_BYTES_MAX;

/// A schedule that has no time in so many days has none at all: 29 February comes every 8 years at the latest.
const DAYS_AHEAD_MAX: u32 = 366 * 9;

const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

/// Bit n is set when value n fits.
type Bits = u64;

#[derive(Debug, Clone, PartialEq)]
pub struct Schedule {
    minutes: Bits,
    hours: Bits,
    days: Bits,
    months: Bits,
    weekdays: Bits,
    /// Day of month and day of week were both narrowed: either will do, as cron has it.
    either_day: bool,
    zone: TimeZone,
}

struct Field {
    what: &'static str,
    min: u32,
    max: u32,
    names: &'static [&'static str],
    /// What the first of `names` means.
    first: u32,
}

impl Schedule {
    /// `zone` is a name of the time zone database; UTC when absent.
    pub fn parse(text: &str, zone: Option<&str>) -> Result<Self> {
        if text.len() > SCHEDULE_BYTES_MAX {
            return Err(wrong(text, &format!("it is longer than {SCHEDULE_BYTES_MAX} bytes")));
        }
        let zone = match zone {
            None => TimeZone::UTC,
            Some(name) => TimeZone::get(name).map_err(|error| {
                Error::invalid(format!("'{}' is not a time zone of this machine", shown(name)))
                    .hint("write it as in the time zone database, such as Europe/Berlin")
                    .because(error)
                    .at("time_zone")
            })?,
        };
        let spelled = match text.trim() {
            "@hourly" => "0 * * * *",
            "@daily" | "@midnight" => "0 0 * * *",
            "@weekly" => "0 0 * * 0",
            "@monthly" => "0 0 1 * *",
            "@yearly" | "@annually" => "0 0 1 1 *",
            other => other,
        };
        let parts: Vec<&str> = spelled.split_whitespace().collect();
        let [minute, hour, day, month, weekday] = parts[..] else {
            return Err(wrong(text, &format!("it has {} fields instead of five", parts.len())));
        };
        let field = |what, min, max| Field { what, min, max, names: &[], first: 0 };
        let months = Field { what: "month", min: 1, max: 12, names: &MONTHS, first: 1 };
        let weekdays = Field { what: "day of week", min: 0, max: 7, names: &DAYS, first: 0 };
        let mut week = weekdays.read(weekday).map_err(|why| wrong(text, &why))?;
        if week & (1 << 7) != 0 {
            week |= 1;
        }
        let schedule = Self {
            minutes: field("minute", 0, 59).read(minute).map_err(|why| wrong(text, &why))?,
            hours: field("hour", 0, 23).read(hour).map_err(|why| wrong(text, &why))?,
            days: field("day of month", 1, 31).read(day).map_err(|why| wrong(text, &why))?,
            months: months.read(month).map_err(|why| wrong(text, &why))?,
            weekdays: week,
            either_day: !day.starts_with('*') && !weekday.starts_with('*'),
            zone,
        };
        match schedule.next(Timestamp(0)) {
            Some(_) => Ok(schedule),
            None => Err(wrong(text, "no day is ever like that")),
        }
    }

    /// The first time after `after`. A time that the clocks skip in spring comes at the next one there
    /// is; one that they repeat in autumn comes once.
    pub fn next(&self, after: Timestamp) -> Option<Timestamp> {
        let start = jiff::Timestamp::from_microsecond(after.0).ok()?.to_zoned(self.zone.clone()).datetime();
        let mut date = start.date();
        for _ in 0..DAYS_AHEAD_MAX {
            if self.day_fits(date) {
                let found = self.times(date).filter_map(|time| self.at(time)).find(|time| *time > after);
                if found.is_some() {
                    return found;
                }
            }
            date = date.tomorrow().ok()?;
        }
        None
    }

    fn at(&self, time: DateTime) -> Option<Timestamp> {
        let zoned = self.zone.to_ambiguous_zoned(time).compatible().ok()?;
        Some(Timestamp(zoned.timestamp().as_microsecond()))
    }

    fn times(&self, date: Date) -> impl Iterator<Item = DateTime> + '_ {
        let fits = |bits: Bits, value: u32| bits & (1 << value) != 0;
        (0..24u32).filter(move |hour| fits(self.hours, *hour)).flat_map(move |hour| {
            let minutes = (0..60u32).filter(move |minute| fits(self.minutes, *minute));
            minutes.map(move |minute| date.at(hour as i8, minute as i8, 0, 0))
        })
    }

    fn day_fits(&self, date: Date) -> bool {
        let fits = |bits: Bits, value: i8| bits & (1 << value) != 0;
        if !fits(self.months, date.month()) {
            return false;
        }
        let day = fits(self.days, date.day());
        let weekday = fits(self.weekdays, date.weekday().to_sunday_zero_offset());
        if self.either_day { day || weekday } else { day && weekday }
    }
}

impl Field {
    fn read(&self, text: &str) -> Result<Bits, String> {
        let mut bits = 0;
        for item in text.split(',') {
            let (range, step) = match item.split_once('/') {
                None => (item, None),
                Some((range, step)) => match step.parse::<u32>() {
                    Ok(step) if (1..=self.max).contains(&step) => (range, Some(step)),
                    _ => return Err(format!("'{item}' is not a step of the {}", self.what)),
                },
            };
            let (from, to) = match range.split_once('-') {
                _ if range == "*" => (self.min, self.max),
                Some((from, to)) => (self.value(from)?, self.value(to)?),
                // `5/10` means from 5 on.
                None if step.is_some() => (self.value(range)?, self.max),
                None => (self.value(range)?, self.value(range)?),
            };
            if from > to {
                return Err(format!("'{item}' goes backwards in the {}", self.what));
            }
            bits |= (from..=to).step_by(step.unwrap_or(1) as usize).fold(0, |bits, value| bits | 1 << value);
        }
        Ok(bits)
    }

    fn value(&self, text: &str) -> Result<u32, String> {
        let lower = text.to_ascii_lowercase();
        let named = self.names.iter().position(|name| *name == lower).map(|at| at as u32 + self.first);
        let value = named.or_else(|| text.parse().ok().filter(|_| text.bytes().all(|b| b.is_ascii_digit())));
        match value {
            Some(value) if (self.min..=self.max).contains(&value) => Ok(value),
            _ => Err(format!(
                "'{}' is not a {}: expected {} to {}",
                shown(text),
                self.what,
                self.min,
                self.max
            )),
        }
    }
}

fn wrong(text: &str, why: &str) -> Error {
    Error::invalid(format!("'{}' is not a schedule: {why}", shown(text)))
        .hint("five fields: minute, hour, day of month, month, day of week; such as '*/5 * * * *'")
        .at("schedule")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(text: &str) -> Timestamp {
        serde_json::from_str(&format!("\"{text}\"")).expect("a time")
    }

    fn next(schedule: &str, after: &str) -> String {
        let schedule = Schedule::parse(schedule, None).expect("a schedule");
        schedule.next(time(after)).expect("a next time").to_string()
    }

    #[test]
    fn the_next_time_is_the_first_that_fits() {
        assert_eq!(next("*/5 * * * *", "2026-01-01T00:00:00Z"), "2026-01-01T00:05:00Z");
        assert_eq!(next("0 9 * * mon-fri", "2026-01-02T09:00:00Z"), "2026-01-05T09:00:00Z");
        assert_eq!(next("30 4 29 2 *", "2026-01-01T00:00:00Z"), "2028-02-29T04:30:00Z");
        assert_eq!(next("@monthly", "2026-12-31T23:59:59Z"), "2027-01-01T00:00:00Z");
        // Both days narrowed: either will do. 7 is Sunday as well as 0.
        assert_eq!(next("0 0 13 * 7", "2026-01-05T00:00:00Z"), "2026-01-11T00:00:00Z");
    }

    #[test]
    fn what_is_no_schedule_is_refused_with_the_reason() {
        for (text, why) in [
            ("* * * *", "4 fields"),
            ("60 * * * *", "minute"),
            ("* * 31 2 *", "no day"),
            ("*/0 * * * *", "step"),
            ("5-1 * * * *", "backwards"),
            ("* * * * +1", "day of week"),
        ] {
            let error = Schedule::parse(text, None).expect_err(text);
            assert!(error.message.contains(why), "{text}: {}", error.message);
        }
        assert!(Schedule::parse("* * * * *", Some("Mars/Olympus")).is_err());
    }
}
