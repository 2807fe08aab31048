//! What is wrong with files that describe resources: all of it, each with its file, line, document and field.

use model::Fault;

use crate::failure::Failure;

/// Most that are told; the rest is counted.
const FLAWS_SHOWN: usize = 50;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flaw {
    pub file: String,
    pub line: Option<usize>,
    /// Which document, and what it describes.
    pub document: Option<String>,
    pub fault: Fault,
}

impl Flaw {
    /// A text that cannot be read at all.
    pub fn at_line(file: &str, line: Option<usize>, message: impl Into<String>) -> Self {
        let fault = Fault { field: None, message: message.into(), hint: None };
        Self { file: file.to_owned(), line, document: None, fault }
    }

    fn place(&self) -> String {
        let mut place = match self.line {
            Some(line) => format!("{}:{line}", self.file),
            None => self.file.clone(),
        };
        for part in [&self.document, &self.fault.field].into_iter().flatten() {
            place += &format!(", {part}");
        }
        place
    }

    pub fn line(&self) -> String {
        match &self.fault.hint {
            Some(hint) => format!("{}: {}; {hint}", self.place(), self.fault.message),
            None => format!("{}: {}", self.place(), self.fault.message),
        }
    }

    /// All of them as one failure. There is at least one.
    pub fn failure(mut flaws: Vec<Self>) -> Failure {
        if let [flaw] = &flaws[..] {
            let failure = Failure::new(flaw.fault.message.clone()).at(flaw.place());
            return match &flaw.fault.hint {
                Some(hint) => failure.hint(hint),
                None => failure,
            };
        }
        let count = flaws.len();
        flaws.truncate(FLAWS_SHOWN);
        let mut lines: Vec<String> = flaws.iter().map(Self::line).collect();
        lines.extend((count > FLAWS_SHOWN).then(|| format!("and {} more", count - FLAWS_SHOWN)));
        Failure::new(format!("{count} things are wrong, so nothing was changed")).details(lines)
    }
}
