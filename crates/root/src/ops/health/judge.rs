//! From what was measured to a light and a sentence. No I/O; the limits of every check stand here.

use std::time::Duration;

use model::health::certificate_light;
use model::{Check, Light, PlaceMode, Timestamp};
use object::inventory::{Condition, OUTBOX_MAX};

const SECOND_MS: i64 = 1_000;
const HOUR_MS: i64 = 3_600 * SECOND_MS;
const DAY_MS: i64 = 24 * HOUR_MS;

/// A commit that takes longer makes every change slow.
const STORE_SLOW: Duration = Duration::from_millis(500);
const STORE_BAD: Duration = Duration::from_secs(5);
/// Per cent of the disk that are free.
const DISK_LOW_PERCENT: u64 = 15;
const DISK_FULL_PERCENT: u64 = 5;
/// Room for less than this many times the reserve of the object store is nearly none.
const OBJECTS_LOW_FACTOR: u64 = 8;
/// Per cent of the queue of events that are many.
const OUTBOX_LONG_PERCENT: u64 = 50;
/// Clocks further apart than this make times of the history misleading; much further apart,
/// certificates and leases are in danger.
const CLOCK_OFF_MS: u64 = 2_000;
const CLOCK_BAD_MS: u64 = 30_000;
/// A root server that beat longer ago than this is late.
const SERVER_LATE_MS: i64 = 3_000;
/// A history that reaches back less than this forgets too fast.
const HISTORY_SHORT_MS: i64 = DAY_MS;

/// A length of time in its largest unit.
pub fn lasting(ms: i64) -> String {
    match ms.max(0) / SECOND_MS {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7_200 => format!("{} min", seconds / 60),
        seconds @ 7_200..172_800 => format!("{} h", seconds / 3_600),
        seconds => format!("{} days", seconds / 86_400),
    }
}

pub fn store(took: Result<Duration, model::Error>, at: Timestamp) -> Check {
    let took = match took {
        Ok(took) => took,
        Err(error) => {
            let message = format!("it takes no change: {}", error.message);
            return Check::new("store", "root", Light::Red, message, at)
                .hint("see that the database answers and its disk has room");
        }
    };
    let message = format!("a small change took {} ms", took.as_millis());
    let slow = "see whether the disk of the database is busy";
    match took {
        took if took < STORE_SLOW => Check::new("store", "root", Light::Green, message, at),
        took if took < STORE_BAD => Check::new("store", "root", Light::Yellow, message, at).hint(slow),
        _ => Check::new("store", "root", Light::Red, message, at).hint(slow),
    }
}

pub fn feed(following: bool, at: Timestamp) -> Check {
    match following {
        true => Check::new("feed", "root", Light::Green, "changes of the store are followed", at),
        false => Check::new("feed", "root", Light::Red, "changes of the store are not followed", at)
            .hint("it is tried again all the time; see that the database answers"),
    }
}

/// A duty of root, with where its holder runs; several servers share the duties.
pub fn duty(name: &str, holder: Option<&str>, at: Timestamp) -> Check {
    match holder {
        Some(place) => Check::new("duty", "root", Light::Green, format!("{name}: held by {place}"), at),
        None => Check::new("duty", "root", Light::Red, format!("{name}: nobody holds it"), at).hint(
            "another server takes it over within seconds; if it lasts, see the logs of the root servers",
        ),
    }
}

/// A server that does not beat is late, and after a few seconds lost: the others have what it held.
pub fn server(server: &api::Server, at: Timestamp) -> Check {
    let silent = at.ms_since(server.last_heard).max(0);
    let duties = if server.duties.is_empty() { "nothing".to_owned() } else { server.duties.join(", ") };
    let (since, heard) = (lasting(at.ms_since(server.since).max(0)), lasting(silent));
    let message = format!("{}: there for {since}, heard {heard} ago, holds {duties}", server.name);
    if server.lost {
        let message = format!("{}: silent for {heard}", server.name);
        return Check::new("server", "root", Light::Red, message, at)
            .hint(format!("start it again, or forget it with: banyan server remove '{}'", server.name));
    }
    match silent > SERVER_LATE_MS {
        true => Check::new("server", "root", Light::Yellow, message, at)
            .hint("another server takes over what it holds within seconds; look after it"),
        false => Check::new("server", "root", Light::Green, message, at),
    }
}

pub fn disk(space: Result<(u64, u64), model::Error>, at: Timestamp) -> Check {
    let (total, free) = match space {
        Ok((total, free)) if total > 0 => (total, free),
        Ok(_) => return Check::new("disk", "root", Light::Yellow, "its size is not known", at),
        Err(error) => return Check::new("disk", "root", Light::Yellow, error.message, at),
    };
    let percent = free.saturating_mul(100) / total;
    let message = format!("{percent} % free, {} MiB", free >> 20);
    let check = |light| Check::new("disk", "root", light, message.clone(), at);
    let hint = "make room on the disk of root's data folder: old images, old logs";
    match percent {
        percent if percent < DISK_FULL_PERCENT => check(Light::Red).hint(hint),
        percent if percent < DISK_LOW_PERCENT => check(Light::Yellow).hint(hint),
        _ => check(Light::Green),
    }
}

/// The object store: whether it takes changes, has room, is sound, and is rid of its events.
pub fn objects(found: Result<Condition, model::Error>, at: Timestamp) -> Vec<Check> {
    let check = |light, message: String| Check::new("objects", "root", light, message, at);
    let Condition { total, stats, outbox, gateway } = match found {
        Ok(found) => found,
        Err(error) => return vec![check(Light::Red, error.message)],
    };
    let mut checks = Vec::new();
    let mib = |bytes: u64| bytes >> 20;
    if stats.stopped {
        let message =
            "the store stopped after a failure to write; it is read, and takes no changes".to_owned();
        let hint = "see the log and the disk's health, then restart this root server: it goes on from what is on the disk";
        checks.push(check(Light::Red, message).hint(hint));
    }
    if let Some((place, trouble)) = gateway.and_then(|found| Some((found.place, found.trouble?))) {
        let message = format!("the store behind this one does not answer ({place}): {trouble}");
        checks.push(check(Light::Red, message).hint("large objects cannot be read or put until it does"));
    }
    if stats.is_full() {
        let message = format!("its disk is full: {} MiB free, all of them kept for deletes", mib(stats.free));
        checks.push(
            check(Light::Red, message).hint("delete objects, or make room on the disk of its data folder"),
        );
    } else if stats.free < stats.reserve.saturating_mul(OBJECTS_LOW_FACTOR) {
        let message = format!(
            "its disk is nearly full: {} MiB until puts are refused",
            mib(stats.free - stats.reserve)
        );
        checks.push(check(Light::Yellow, message).hint("make room on the disk of its data folder"));
    }
    if stats.damaged > 0 {
        let message = match stats.damaged {
            1 => "1 piece of an object does not match its checksum".to_owned(),
            count => format!("{count} pieces of objects do not match their checksums"),
        };
        checks.push(
            check(Light::Red, message)
                .hint("banyan object-store damage; put those objects anew or delete them"),
        );
    }
    if outbox >= OUTBOX_MAX {
        let message = "the queue of events for webhooks is full; new events are dropped".to_owned();
        checks.push(
            check(Light::Red, message)
                .hint("see whether the webhooks answer; the log names those that do not"),
        );
    } else if outbox >= OUTBOX_MAX * OUTBOX_LONG_PERCENT / 100 {
        let message = format!("{outbox} events wait for webhooks; beyond {OUTBOX_MAX} they are dropped");
        checks.push(
            check(Light::Yellow, message)
                .hint("see whether the webhooks answer; the log names those that do not"),
        );
    }
    if checks.is_empty() {
        let scrubbed = match stats.scrub.ended {
            0 => "not all read yet".to_owned(),
            ended => format!("all read {} ago", lasting(at.ms_since(Timestamp(ended * 1000)))),
        };
        let message = format!("{} objects, {} MiB, {scrubbed}", total.usage.objects, mib(total.usage.bytes));
        checks.push(check(Light::Green, message));
    }
    checks
}

/// `what` is whose certificate it is, as part of a sentence.
pub fn certificate(
    subject: &str,
    what: &str,
    from: Option<Timestamp>,
    until: Timestamp,
    at: Timestamp,
) -> Check {
    let left = until.ms_since(at);
    if left <= 0 {
        let message = format!("{what} ended {} ago", lasting(-left));
        return Check::new("certificate", subject, Light::Red, message, at)
            .hint("remove it and let it join again with: banyan enroll");
    }
    let message = format!("{what} is good for {}", lasting(left));
    let check = |light| Check::new("certificate", subject, light, message.clone(), at);
    let hint = "it should have been renewed by now; see the log of its process";
    match certificate_light(from, until, at) {
        Light::Green => check(Light::Green),
        light => check(light).hint(hint),
    }
}

pub fn clock(subject: &str, ahead_ms: i64, at: Timestamp) -> Check {
    let off = ahead_ms.unsigned_abs();
    let way = if ahead_ms < 0 { "behind" } else { "ahead of" };
    let message = format!("{off} ms {way} root's clock");
    let check = |light| Check::new("clock", subject, light, message.clone(), at);
    let hint = "set the clock there by NTP";
    match off {
        off if off >= CLOCK_BAD_MS => check(Light::Red).hint(hint),
        off if off >= CLOCK_OFF_MS => check(Light::Yellow).hint(hint),
        _ => check(Light::Green),
    }
}

/// How many lines were ever written, how many are kept, and when the oldest of those was written if
/// some were dropped already.
pub fn history(written: i64, kept: i64, oldest: Option<Timestamp>, at: Timestamp) -> Check {
    let Some(oldest) = oldest else {
        let message = format!("{written} lines; the last {kept} are kept");
        return Check::new("history", "root", Light::Green, message, at);
    };
    let reach = at.ms_since(oldest);
    let message = format!("the last {kept} lines reach back {}", lasting(reach));
    match reach < HISTORY_SHORT_MS {
        true => Check::new("history", "root", Light::Yellow, message, at)
            .hint("something changes very often; copy the history elsewhere if it must last"),
        false => Check::new("history", "root", Light::Green, message, at),
    }
}

/// The lease of a zone: alive, nearly lapsed, or lost.
pub fn lease(
    subject: &str,
    mode: PlaceMode,
    live: bool,
    last_seen: Option<Timestamp>,
    lease_ms: i64,
    at: Timestamp,
) -> Check {
    let silent = last_seen.map(|seen| at.ms_since(seen).max(0));
    let heard = match silent {
        Some(ms) => format!("heard {} ago", lasting(ms)),
        None => "never heard since this root started".to_owned(),
    };
    let check = |light, message| Check::new("lease", subject, light, message, at);
    match (live, mode) {
        (false, PlaceMode::Maintenance) => check(Light::Green, format!("away for maintenance; {heard}")),
        (false, _) => check(Light::Red, format!("lost; {heard}"))
            .hint("see that its process runs and reaches root; what it held is placed elsewhere meanwhile"),
        (true, _) if lease_ms > 0 && silent.is_some_and(|ms| ms > lease_ms * 2 / 3) => {
            check(Light::Yellow, format!("nearly lapsed; {heard}"))
        }
        (true, _) => check(Light::Green, heard),
    }
}

/// A zone that did not speak since this root started; its lease runs.
pub fn unheard(subject: &str, at: Timestamp) -> Check {
    Check::new("lease", subject, Light::Yellow, "not heard yet since it joined or root started", at)
        .hint("it is counted as lost if it does not come within its lease; see that its process runs")
}

/// Two processes speak with the identity of one zone, in turns.
pub fn twins(subject: &str, at: Timestamp) -> Check {
    Check::new("identity", subject, Light::Red, "two processes speak with its identity, in turns", at)
        .hint("its data folder was copied: stop one of them, and let it join anew with a token of its own")
}

/// Worst first, then by what it is about; and the worst of all.
pub fn sorted(mut checks: Vec<Check>) -> (Light, Vec<Check>) {
    checks.sort_by(|a, b| {
        b.light.cmp(&a.light).then_with(|| (&a.subject, &a.name).cmp(&(&b.subject, &b.name)))
    });
    (checks.first().map(|check| check.light).unwrap_or_default(), checks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use Light::{Green, Red, Yellow};

    const NOW: Timestamp = Timestamp(1_000_000_000_000_000);

    #[test]
    fn every_limit_turns_its_light() {
        let ms = Duration::from_millis;
        for (took, light) in [(2, Green), (499, Green), (500, Yellow), (5_000, Red)] {
            assert_eq!(store(Ok(ms(took)), NOW).light, light, "{took}");
        }
        assert_eq!(store(Err(model::Error::unavailable("no")), NOW).light, Red);
        for (free, light) in [(100, Green), (15, Green), (14, Yellow), (4, Red), (0, Red)] {
            assert_eq!(disk(Ok((100, free)), NOW).light, light, "{free} %");
        }
        let cert = |life: i64, left: i64| {
            let (from, until) = (NOW.plus_ms((left - life) * HOUR_MS), NOW.plus_ms(left * HOUR_MS));
            certificate("zone a", "its certificate", Some(from), until, NOW).light
        };
        for (days, light) in [(100, Green), (90, Yellow), (40, Yellow), (30, Red), (-1, Red)] {
            assert_eq!(cert(24 * 365, 24 * days), light, "{days} days of a year");
        }
        for (hours, light) in [(8, Green), (6, Yellow), (2, Red)] {
            assert_eq!(cert(24, hours), light, "{hours} hours of a day");
        }
        for (ahead, light) in [(0, Green), (-999, Green), (2_000, Yellow), (-60_000, Red)] {
            assert_eq!(clock("zone a", ahead, NOW).light, light, "{ahead} ms");
        }
        for (hours, light) in [(48, Green), (3, Yellow)] {
            assert_eq!(history(300_000, 200_000, Some(NOW.plus_ms(-hours * HOUR_MS)), NOW).light, light);
        }
    }

    #[test]
    fn the_object_store_says_what_is_wrong() {
        let judge = |change: fn(&mut Condition)| {
            let mut found = Condition::default();
            found.stats.reserve = 32 << 20;
            found.stats.free = 100 << 30;
            change(&mut found);
            sorted(objects(Ok(found), NOW)).0
        };
        assert_eq!(judge(|_| {}), Green);
        assert_eq!(judge(|found| found.stats.free = 40 << 20), Yellow);
        assert_eq!(judge(|found| found.stats.free = 32 << 20), Red);
        assert_eq!(judge(|found| found.stats.stopped = true), Red);
        assert_eq!(judge(|found| found.stats.damaged = 1), Red);
        assert_eq!(judge(|found| found.outbox = OUTBOX_MAX / 2), Yellow);
        assert_eq!(judge(|found| found.outbox = OUTBOX_MAX), Red);
        assert_eq!(sorted(objects(Err(model::Error::internal("no")), NOW)).0, Red);
    }

    #[test]
    fn silence_alarms_unless_it_is_expected() {
        let judge =
            |live, mode, ms: i64| lease("zone a", mode, live, Some(NOW.plus_ms(-ms)), 15_000, NOW).light;
        assert_eq!(judge(true, PlaceMode::Open, 1_000), Green);
        assert_eq!(judge(true, PlaceMode::Open, 11_000), Yellow);
        assert_eq!(judge(false, PlaceMode::Draining, 60_000), Red);
        assert_eq!(judge(false, PlaceMode::Maintenance, 60_000), Green);
    }

    #[test]
    fn the_worst_comes_first_and_counts() {
        let check = |name: &str, light| Check::new(name, "root", light, "x", NOW);
        let (light, checks) = sorted(vec![check("a", Green), check("c", Red), check("b", Yellow)]);
        assert_eq!((light, checks[0].name.as_str(), checks[2].name.as_str()), (Red, "c", "a"));
        assert_eq!(sorted(Vec::new()).0, Green);
    }
}
