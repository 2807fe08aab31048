//! How long the search may go on. The clock is the caller's.

/// The search was ended before it knew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stopped;

/// Steps between two looks at the clock.
const STEPS_PER_LOOK: u32 = 256;

pub struct Budget<'a> {
    go_on: &'a mut dyn FnMut() -> bool,
    steps: u32,
}

impl<'a> Budget<'a> {
    /// `go_on` is asked now and then; the search ends when it says no.
    pub fn new(go_on: &'a mut dyn FnMut() -> bool) -> Self {
        Self { go_on, steps: 0 }
    }

    pub fn tick(&mut self) -> Result<(), Stopped> {
        self.steps += 1;
        if self.steps < STEPS_PER_LOOK {
            return Ok(());
        }
        self.steps = 0;
        if (self.go_on)() { Ok(()) } else { Err(Stopped) }
    }
}
