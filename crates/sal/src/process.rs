//! Processes by number, told apart from later ones that got the same number.
//!
//! A number alone says nothing after a restart of ours: the kernel reuses
//! them. A number with its start time names one process for one boot.

use std::os::fd::OwnedFd;

use model::{Bytes, Error, Result};
use rustix::process::{Pid, PidfdFlags, Resource, Rlimit, getrlimit, pidfd_open, setrlimit};

/// When the process started, in clock ticks since boot, or nothing when there is none.
pub fn process_start_time(pid: u32) -> Option<u64> {
    stat_fields(pid).and_then(|stat| stat.start_time)
}

/// True while the process that started at `start_time` runs. A zombie has ended.
pub fn process_alive(pid: u32, start_time: u64) -> bool {
    stat_fields(pid)
        .is_some_and(|stat| stat.start_time == Some(start_time) && !matches!(stat.state, 'Z' | 'X'))
}

/// Memory the process holds in RAM.
pub fn process_rss(pid: u32) -> Option<Bytes> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"))?;
    Some(Bytes(kib.trim().parse::<u64>().ok()?.saturating_mul(1024)))
}

/// A descriptor that becomes readable when the process ends; nothing when it has ended already.
pub fn process_watch(pid: u32, start_time: u64) -> Result<Option<OwnedFd>> {
    let Some(number) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return Ok(None) };
    let watch = match pidfd_open(number, PidfdFlags::empty()) {
        Ok(watch) => watch,
        Err(rustix::io::Errno::SRCH) => return Ok(None),
        Err(error) => {
            return Err(Error::internal(format!("process {pid} cannot be watched")).because(error));
        }
    };
    // The number may have passed to another process before it was opened; what is open now keeps it.
    Ok(process_alive(pid, start_time).then_some(watch))
}

struct Stat {
    state: char,
    start_time: Option<u64>,
}

/// The name of a program may hold spaces and brackets, so the fields are counted from the last bracket.
fn stat_fields(pid: u32) -> Option<Stat> {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    stat_parse(&String::from_utf8_lossy(&stat))
}

fn stat_parse(stat: &str) -> Option<Stat> {
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split_whitespace();
    let state = fields.next()?.chars().next()?;
    // The state is field 3, the start time field 22.
    Some(Stat { state, start_time: fields.nth(18).and_then(|time| time.parse().ok()) })
}

/// How many files this process may have open when it asks for all that it may.
pub fn files_max() -> u64 {
    getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX)
}

/// As many open files as this process may have; shells and service managers give much less unasked. Connections of strangers
/// must not be what ends them.
pub fn files_raise() {
    let limit = getrlimit(Resource::Nofile);
    // A limit that cannot be raised is as it was.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::process::Command;

    #[test]
    fn this_process_is_alive_and_a_namesake_is_not() {
        let pid = std::process::id();
        let start = process_start_time(pid).unwrap();
        assert!(process_alive(pid, start));
        assert!(!process_alive(pid, start + 1));
        assert!(process_rss(pid).unwrap().0 > 0);
        assert!(process_watch(pid, start + 1).unwrap().is_none());
    }

    #[test]
    fn an_ended_child_is_not_alive_even_before_it_is_collected() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let start = process_start_time(child.id()).unwrap();
        let watch = process_watch(child.id(), start).unwrap().unwrap();
        child.kill().unwrap();
        let mut ended = [rustix::event::PollFd::new(&watch, rustix::event::PollFlags::IN)];
        assert_eq!(rustix::event::poll(&mut ended, None).unwrap(), 1);
        assert!(!process_alive(child.id(), start), "a zombie has ended");
        child.wait().unwrap();
        assert!(!process_alive(child.id(), start));
        assert_eq!(process_start_time(child.id()), None);
    }

    #[test]
    fn as_many_files_may_be_open_as_this_process_may_have() {
        files_raise();
        let limit = getrlimit(Resource::Nofile);
        assert_eq!(limit.current, limit.maximum);
    }

    #[test]
    fn a_name_with_brackets_and_spaces_does_not_shift_the_fields() {
        let stat = "42 (a) b) (c) S 1 42 42 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 987654 1 1";
        let stat = stat_parse(stat).unwrap();
        assert_eq!((stat.state, stat.start_time), ('S', Some(987_654)));
    }
}
