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

    /// Lets a search take so many looks at the clock at most; none when it wants more. It ends with this one, too.
    pub fn part<T>(
        &mut self,
        mut looks: u32,
        search: impl FnOnce(&mut Budget<'_>) -> Result<T, Stopped>,
    ) -> Result<Option<T>, Stopped> {
        let go_on = &mut *self.go_on;
        let mut over = self.over;
        let found = search(&mut Budget::new(&mut || {
            over = over || !go_on();
            looks = looks.saturating_sub(1);
            !over && looks > 0
        }));
        self.over = over;
        match found {
            Ok(found) => Ok(Some(found)),
            Err(Stopped) if over => Err(Stopped),
            Err(Stopped) => Ok(None),
        }
    }

    pub fn tick(&mut self) -> Result<(), Stopped> {
        self.steps = (self.steps + 1) % STEPS_PER_LOOK;
        if self.steps == 0 && !self.over {
            self.over = !(self.go_on)();
        }
        if self.over { Err(Stopped) } else { Ok(()) }
    }
}
