//! A text that may not become larger than it is allowed to: a macro of a few letters can name every machine, and
//! `map` can say each of them a million times.

/// There is no room for more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full;

/// A text, and the bytes that may still be added to it.
#[derive(Debug)]
pub struct Room {
    text: String,
    left: usize,
}

impl Room {
    pub fn new(left: usize) -> Self {
        Self { text: String::new(), left }
    }

    pub fn push(&mut self, more: &str) -> Result<(), Full> {
        self.spend(more.len())?;
        self.text.push_str(more);
        Ok(())
    }

    /// Takes room for what is work and no text.
    pub fn spend(&mut self, bytes: usize) -> Result<(), Full> {
        self.left = self.left.checked_sub(bytes).ok_or(Full)?;
        Ok(())
    }

    /// The text so far; the next one begins with what is left of the room.
    pub fn take(&mut self) -> String {
        std::mem::take(&mut self.text)
    }
}
