//! The user's terminal while a remote program owns it: raw mode that is always
//! given back, and the size.

use std::io::IsTerminal;

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

use crate::failure::{Failure, Result};

/// What a terminal that does not say is taken for.
const SIZE_DEFAULT: (u16, u16) = (24, 80);

/// Raw mode of standard input for as long as this lives. It is given back when
/// it is dropped: at the end, on an error and while a panic unwinds.
pub struct RawMode {
    saved: Termios,
}

impl RawMode {
    pub fn enter() -> Result<Self> {
        let input = std::io::stdin();
        let saved =
            tcgetattr(&input).map_err(|error| Failure::new(format!("cannot read the terminal: {error}")))?;
        let mut raw = saved.clone();
        raw.make_raw();
        tcsetattr(&input, OptionalActions::Now, &raw)
            .map_err(|error| Failure::new(format!("cannot set the terminal: {error}")))?;
        Ok(Self { saved })
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        // Nothing can be done about an error here: the terminal is gone.
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Drain, &self.saved);
    }
}

/// Rows and columns.
pub fn size() -> (u16, u16) {
    match tcgetwinsize(std::io::stdout()) {
        Ok(size) if size.ws_row > 0 && size.ws_col > 0 => (size.ws_row, size.ws_col),
        _ => SIZE_DEFAULT,
    }
}

/// Whether a program that wants a terminal can have this one.
pub fn interactive() -> bool {
    std::io::stdin().is_terminal() && std::io::stdout().is_terminal()
}

/// Asks a question that is answered with yes or, by anything else, with no.
pub fn confirm(question: &str) -> Result<bool> {
    use std::io::{BufRead, Write};
    let _ = write!(std::io::stderr(), "{question} [y/N] ");
    let mut line = String::new();
    std::io::stdin()
        .lock()
        .read_line(&mut line)
        .map_err(|error| Failure::new(format!("cannot read the answer: {error}")))?;
    Ok(matches!(line.trim().to_lowercase().as_str(), "y" | "yes"))
}

/// Reads a secret without showing it, or a line from a pipe.
pub fn secret(prompt: &str) -> Result<String> {
    use std::io::{BufRead, Write};
    let input = std::io::stdin();
    let hidden = match input.is_terminal() {
        true => {
            let _ = write!(std::io::stderr(), "{prompt}: ");
            Some(Hidden::enter()?)
        }
        false => None,
    };
    let hidden_before = hidden.is_some();
    let mut line = String::new();
    let read = input.lock().read_line(&mut line);
    if hidden_before {
        drop(hidden);
        let _ = writeln!(std::io::stderr());
    }
    read.map_err(|error| Failure::new(format!("cannot read the {prompt}: {error}")))?;
    let secret = line.trim_end_matches(['\n', '\r']).to_owned();
    if secret.is_empty() {
        let failure = Failure::new(format!("the {prompt} is empty"));
        // Without a terminal nobody was asked.
        return Err(match hidden_before {
            true => failure,
            false => failure.hint("without a terminal it is read from standard input, as one line"),
        });
    }
    Ok(secret)
}

/// Input that is not shown, for as long as this lives.
struct Hidden {
    saved: Termios,
}

impl Hidden {
    fn enter() -> Result<Self> {
        let input = std::io::stdin();
        let failed = |error| Failure::new(format!("cannot set the terminal: {error}"));
        let saved = tcgetattr(&input).map_err(failed)?;
        let mut silent = saved.clone();
        silent.local_modes.remove(rustix::termios::LocalModes::ECHO);
        tcsetattr(&input, OptionalActions::Now, &silent).map_err(failed)?;
        Ok(Self { saved })
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &self.saved);
    }
}
