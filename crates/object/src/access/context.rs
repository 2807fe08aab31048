//! What is known about a request, under the names that conditions of policies use.

use std::collections::BTreeMap;

/// Condition keys and their values. Names are the same in any case.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Context(BTreeMap<String, Vec<String>>);

impl Context {
    pub fn new() -> Self {
        Self::default()
    }

    /// One more value of a key.
    pub fn add(&mut self, key: &str, value: impl Into<String>) {
        self.0.entry(key.to_ascii_lowercase()).or_default().push(value.into());
    }

    /// With one more value of a key.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Into<String>) -> Self {
        self.add(key, value);
        self
    }

    /// Replaces what is known of a key.
    pub fn set(&mut self, key: &str, value: impl Into<String>) {
        self.0.insert(key.to_ascii_lowercase(), vec![value.into()]);
    }

    /// The values of a key; `None` if nothing is known.
    pub fn get(&self, key: &str) -> Option<&[String]> {
        self.0.get(&key.to_ascii_lowercase()).map(Vec::as_slice)
    }
}
