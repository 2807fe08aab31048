//! Memory of this process that it does not need all the time.
#![allow(unsafe_code)]

use std::ops::Range;

use rustix::mm::{Advice, madvise};

/// Lets go of the pages of the program itself that are mapped: of a large binary most are only needed to start.
/// What is needed again comes back from the page cache, where all processes of the binary share it. Returns bytes that
/// were looked at.
pub fn program_release() -> usize {
    let (Ok(program), Ok(maps)) = (std::env::current_exe(), std::fs::read_to_string("/proc/self/smaps"))
    else {
        return 0;
    };
    let spans = program_spans(&maps, &program.to_string_lossy());
    for span in &spans {
        // SAFETY: the span is a mapping of the program's file that this process cannot write to and never wrote to, so
        // every page reads the same after it was let go.
        let _ = unsafe { madvise(span.start as *mut _, span.len(), Advice::LinuxDontNeed) };
    }
    spans.iter().map(ExactSizeIterator::len).sum()
}

/// The mappings of a file that are as the file is: nothing in them can be written, and nothing was.
fn program_spans(smaps: &str, program: &str) -> Vec<Range<usize>> {
    let mut spans = Vec::new();
    let mut open: Option<Range<usize>> = None;
    for line in smaps.lines() {
        let mut words = line.split_whitespace();
        let first = words.next().unwrap_or_default();
        if let Some((start, end)) = first.split_once('-') {
            let number = |text| usize::from_str_radix(text, 16).ok();
            let is_fixed = words.next().is_some_and(|mode| mode == "r-xp" || mode == "r--p");
            let is_program = words.nth(3) == Some(program) && words.next().is_none();
            let span = number(start).zip(number(end)).map(|(start, end)| start..end);
            open = span.filter(|_| is_fixed && is_program);
        } else if first == "Anonymous:" && words.next() == Some("0") {
            // Pages that the loader wrote to before it closed them are no longer those of the file.
            spans.extend(open.take());
        }
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_as_the_file_is_can_be_let_go() {
        let smaps = "\
1000-3000 r--p 00000000 fe:00 7   /bin/x
Rss:                   8 kB
Anonymous:             0 kB
3000-9000 r-xp 00002000 fe:00 7   /bin/x
Anonymous:             0 kB
9000-a000 r--p 00008000 fe:00 7   /bin/x
Anonymous:             4 kB
a000-b000 rw-p 00009000 fe:00 7   /bin/x
Anonymous:             0 kB
b000-c000 r-xp 00000000 fe:00 8   /lib/x
Anonymous:             0 kB
c000-d000 r-xp 00000000 fe:00 8   /bin/x (deleted)
Anonymous:             0 kB
d000-e000 rw-p 00000000 00:00 0
Anonymous:             0 kB
";
        assert_eq!(program_spans(smaps, "/bin/x"), [0x1000..0x3000, 0x3000..0x9000]);
        assert!(program_spans("", "/bin/x").is_empty());
    }

    #[test]
    fn the_program_goes_on() {
        assert!(program_release() > 0);
        assert_eq!(std::hint::black_box("as before").len(), 9);
    }
}
