//! What a command printed, as far as it is kept.

use std::collections::VecDeque;

/// The beginning and the end of a text of any length.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Kept {
    first: Vec<u8>,
    last: VecDeque<u8>,
    total: u64,
    limit: usize,
}

impl Kept {
    /// Keeps up to `limit` bytes of the beginning and as many of the end.
    pub fn new(limit: usize) -> Self {
        Self { limit, ..Self::default() }
    }

    pub fn add(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let (first, rest) = bytes.split_at(bytes.len().min(self.limit - self.first.len()));
        self.first.extend_from_slice(first);
        let rest = &rest[rest.len().saturating_sub(self.limit)..];
        let over = (self.last.len() + rest.len()).saturating_sub(self.limit);
        self.last.drain(..over);
        self.last.extend(rest);
    }

    /// Bytes that came, also those that were not kept.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// As text, with a word about what is missing.
    pub fn text(&self) -> String {
        let kept = (self.first.len() + self.last.len()) as u64;
        let (front, back) = self.last.as_slices();
        let mut bytes = self.first.clone();
        if kept < self.total {
            bytes.extend_from_slice(format!("\n[… {} bytes left out …]\n", self.total - kept).as_bytes());
        }
        bytes.extend_from_slice(front);
        bytes.extend_from_slice(back);
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Exit {
    Code(u32),
    Signal(String),
}

/// What a command has said so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    pub stdout: Kept,
    pub stderr: Kept,
}

impl Said {
    /// Keeps so many bytes of the beginning and of the end of each.
    pub fn new(keep: usize) -> Self {
        Self { stdout: Kept::new(keep), stderr: Kept::new(keep) }
    }

    pub fn ended(self, exit: Exit) -> Output {
        Output { exit, stdout: self.stdout, stderr: self.stderr }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    pub exit: Exit,
    pub stdout: Kept,
    pub stderr: Kept,
}

impl Output {
    pub fn is_good(&self) -> bool {
        self.exit == Exit::Code(0)
    }

    /// Why it failed, for people: how it ended, and the last line it said.
    pub fn reason(&self) -> String {
        let ended = match &self.exit {
            Exit::Code(code) => format!("it ended with code {code}"),
            Exit::Signal(name) => format!("it was ended by the signal {name}"),
        };
        let said = [&self.stderr, &self.stdout].into_iter().find_map(|kept| {
            let text = kept.text();
            text.lines().rev().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned)
        });
        match said {
            Some(line) => format!("{ended}: {}", model::shown(&line)),
            None => ended,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_and_the_end_are_kept() {
        let mut kept = Kept::new(4);
        for byte in b"abcdefghijkl" {
            kept.add(&[*byte]);
        }
        assert_eq!(kept.text(), "abcd\n[… 4 bytes left out …]\nijkl");
        let mut kept = Kept::new(4);
        kept.add(b"abcdefghijkl");
        assert_eq!((kept.text().as_str(), kept.total()), ("abcd\n[… 4 bytes left out …]\nijkl", 12));
        let mut kept = Kept::new(4);
        kept.add(b"abcdef");
        assert_eq!(kept.text(), "abcdef");
    }

    #[test]
    fn a_failure_names_the_last_thing_said() {
        let mut output = Output { exit: Exit::Code(3), stdout: Kept::new(99), stderr: Kept::new(99) };
        assert_eq!(output.reason(), "it ended with code 3");
        output.stdout.add(b"one\n");
        output.stderr.add(b"two\nthree\n\n");
        assert_eq!(output.reason(), "it ended with code 3: three");
    }
}
