//! How long the search may go on. The clock is the caller's.

/// The search was ended before it knew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stopped;

/// Steps between two looks at the clock.
const STEPS_PER_LOOK: u32 = 64;

pub struct Budget<'a> {
    go_on: &'a mut dyn FnMut() -> bool,
    steps: u32,
    over: bool,
}

impl<'a> Budget<'a> {
    /// `go_on` is asked now and then; the search ends when it says no.
    pub fn new(go_on: &'a mut dyn FnMut() -> bool) -> Self {
        Self { go_on, steps: 0, over: false }
    }

    pub fn tick(&mut self) -> Result<(), Stopped> {
        self.steps = (self.steps + 1) % STEPS_PER_LOOK;
        if self.steps == 0 && !self.over {
            self.over = !(self.go_on)();
        }
        if self.over { Err(Stopped) } else { Ok(()) }
    }
}
