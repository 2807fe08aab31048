//! The connections of one child, one after the other, and what is strange about how they follow each other.
//!
//! The upper half of a connection's number is drawn once in the life of the child's process, the lower half counts its
//! connections. A process that ended never comes back, so a number of an earlier life after that of a
//! later one means that two processes have the identity.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use crate::limits::{
    CONNS_ENDED_MAX, CONNS_OFTEN, CONNS_OFTEN_WITHIN, LIVES_MAX, LIVES_TURNS_MAX, TWINS_SAID_EVERY,
};
use crate::uplink::Rarely;

/// The numbers of a child's connections.
pub(crate) struct Numbers {
    life: u32,
    next: AtomicU32,
}

impl Numbers {
    pub(crate) fn new() -> Self {
        Self { life: rand::random(), next: AtomicU32::new(0) }
    }

    pub(crate) fn next(&self) -> u64 {
        u64::from(self.life) << 32 | u64::from(self.next.fetch_add(1, Ordering::Relaxed))
    }
}

/// What the connection that a message came on is to the parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// It is the one that spoke last.
    Same,
    /// It takes the place of the one before.
    New(Option<Strange>),
    /// It is over: another one took its place.
    Late,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Strange {
    /// An earlier process of this identity speaks again after a later one.
    Twin,
    /// So many connections within a short time: somebody should look at its link.
    Often,
}

impl Strange {
    pub(crate) const fn says(self) -> &'static str {
        match self {
            Self::Twin => "two processes speak with one identity: was it copied to another host?",
            Self::Often => "it connects very often: its link is bad",
        }
    }
}

#[derive(Default)]
pub(crate) struct Turns {
    current: Option<u64>,
    /// Connections that are over; what still comes of them is late.
    ended: VecDeque<u64>,
    /// Processes that spoke, the latest last.
    lives: VecDeque<u32>,
    /// When its latest connections began.
    begun: VecDeque<Instant>,
}

impl Turns {
    pub(crate) fn take(&mut self, conn: u64, now: Instant) -> Turn {
        if self.current == Some(conn) {
            return Turn::Same;
        }
        if self.ended.contains(&conn) {
            return Turn::Late;
        }
        self.end();
        self.current = Some(conn);
        let twin = self.life_note(life_of(conn));
        let often = self.begun_note(now);
        Turn::New(match (twin, often) {
            (true, _) => Some(Strange::Twin),
            (false, true) => Some(Strange::Often),
            (false, false) => None,
        })
    }

    /// The current connection is over.
    pub(crate) fn end(&mut self) {
        if let Some(conn) = self.current.take() {
            bounded_push(&mut self.ended, conn, CONNS_ENDED_MAX);
        }
    }

    /// True when the process spoke before and another has since.
    fn life_note(&mut self, life: u32) -> bool {
        if self.lives.back() == Some(&life) {
            return false;
        }
        let again = self.lives.contains(&life);
        self.lives.retain(|known| *known != life);
        bounded_push(&mut self.lives, life, LIVES_MAX);
        again
    }

    /// True when there were so many of late that somebody should look.
    fn begun_note(&mut self, now: Instant) -> bool {
        self.begun.push_back(now);
        let many = self.begun.len() >= CONNS_OFTEN;
        let first = if many { self.begun.pop_front() } else { None };
        let often = first.is_some_and(|first| now.duration_since(first) < CONNS_OFTEN_WITHIN);
        if often {
            self.begun.clear();
        }
        often
    }
}

/// The processes that speak for one child, whichever way they come. Each way sends a second process away by itself;
/// two on different ways meet only here.
pub(crate) struct Lives {
    last: u32,
    before: VecDeque<u32>,
    /// How often one spoke again after another.
    turns: u32,
    said: Rarely,
}

impl Lives {
    pub(crate) fn new(conn: u64) -> Self {
        let (before, said) = (VecDeque::new(), Rarely::new(TWINS_SAID_EVERY));
        Self { last: life_of(conn), before, turns: 0, said }
    }

    /// Whether two processes were seen to speak in turns; and whether to say so.
    pub(crate) fn heard(&mut self, conn: u64) -> Option<bool> {
        let life = life_of(conn);
        if life == self.last {
            return None;
        }
        let again = self.before.contains(&life);
        self.before.retain(|known| *known != life);
        bounded_push(&mut self.before, std::mem::replace(&mut self.last, life), LIVES_MAX);
        self.turns = if again { self.turns.saturating_add(1) } else { 0 };
        (self.turns >= LIVES_TURNS_MAX).then(|| self.said.due())
    }
}

const fn life_of(conn: u64) -> u32 {
    (conn >> 32) as u32
}

fn bounded_push<T>(list: &mut VecDeque<T>, item: T, most: usize) {
    if list.len() >= most {
        list.pop_front();
    }
    list.push_back(item);
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn conn(life: u64, number: u64) -> u64 {
        life << 32 | number
    }

    #[test]
    fn a_process_that_starts_again_is_no_twin_and_one_that_comes_back_is() {
        let (mut turns, now) = (Turns::default(), Instant::now());
        assert_eq!(turns.take(conn(1, 0), now), Turn::New(None));
        assert_eq!(turns.take(conn(1, 0), now), Turn::Same);
        assert_eq!(turns.take(conn(1, 1), now), Turn::New(None), "its link broke");
        assert_eq!(turns.take(conn(1, 0), now), Turn::Late);
        assert_eq!(turns.take(conn(2, 0), now), Turn::New(None), "it was started again");
        assert_eq!(turns.take(conn(1, 1), now), Turn::Late, "what was on the way when it ended");
        assert_eq!(turns.take(conn(1, 2), now), Turn::New(Some(Strange::Twin)));
        assert_eq!(turns.take(conn(2, 1), now), Turn::New(Some(Strange::Twin)));
        turns.end();
        assert_eq!(turns.take(conn(2, 1), now), Turn::Late);
    }

    #[test]
    fn a_link_that_breaks_all_the_time_is_told_now_and_then() {
        let (mut turns, now) = (Turns::default(), Instant::now());
        let told =
            (0..2 * CONNS_OFTEN as u64).filter(|n| turns.take(conn(1, *n), now) != Turn::New(None)).count();
        assert_eq!(told, 2);
    }

    #[test]
    fn two_processes_on_different_ways_are_noticed_and_a_restart_is_not() {
        let mut lives = Lives::new(conn(1, 0));
        for (life, number) in [(1, 1), (2, 0), (1, 1), (2, 0), (2, 1)] {
            assert_eq!(lives.heard(conn(life, number)), None, "what was on the way when it was started anew");
        }
        let said: Vec<_> = (0..4).map(|turn| lives.heard(conn(1 + turn % 2, 0))).collect();
        assert_eq!(said, [Some(true), Some(false), Some(false), Some(false)]);
        assert_eq!(lives.heard(conn(3, 0)), None, "a new one");
    }

    #[test]
    fn numbers_of_one_life_have_it_in_common() {
        let numbers = Numbers::new();
        let (first, second) = (numbers.next(), numbers.next());
        assert!(first != second && first >> 32 == second >> 32);
    }
}
