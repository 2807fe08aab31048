//! Layers of records: what changed since the last checkpoint lies over the index.

use std::collections::BTreeMap;
use std::iter::Peekable;
use std::ops::{Bound, Range};
use std::sync::Arc;

use imbl::OrdMap;

use super::api::EngineError;
use super::index::Base;

/// A key or a value.
pub(super) type Word = Arc<[u8]>;
/// Changes by key; `None` deletes. Cloning it is cheap, so every group publishes its own.
pub(super) type Changes = OrdMap<Word, Option<Word>>;
/// The changes of one closure.
pub(super) type Over = BTreeMap<Word, Option<Word>>;

/// Records as of a durable group.
pub(super) struct State {
    pub active: Changes,
    /// What a checkpoint is writing to the index.
    pub frozen: Changes,
    pub base: Arc<Base>,
}

impl State {
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, EngineError> {
        for layer in [&self.active, &self.frozen] {
            if let Some(value) = layer.get(key) {
                return Ok(value.as_ref().map(|value| value.to_vec()));
            }
        }
        self.base.get(key)
    }

    pub fn scan(
        &self,
        range: &Range<Vec<u8>>,
        over: Option<&Over>,
        mut each: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), EngineError> {
        if range.start >= range.end {
            return Ok(());
        }
        let mut memory = Merge { layers: Vec::with_capacity(3) };
        let bounds = (Bound::Included(range.start.as_slice()), Bound::Excluded(range.end.as_slice()));
        if let Some(over) = over.filter(|over| !over.is_empty()) {
            memory.push(over.range::<[u8], _>(bounds));
        }
        for layer in [&self.active, &self.frozen].into_iter().filter(|layer| !layer.is_empty()) {
            memory.push(layer.range::<_, [u8]>(bounds));
        }
        let mut base = self.base.range(range)?;
        let mut below = base.next().transpose()?;
        loop {
            let above = memory.first();
            let (key, value) = match (above, &below) {
                (None, None) => return Ok(()),
                (Some(above), Some(entry)) if above.0 <= entry.0.value() => {
                    if above.0 == entry.0.value() {
                        below = base.next().transpose()?;
                    }
                    memory.skip(above.0);
                    above
                }
                (Some(above), None) => {
                    memory.skip(above.0);
                    above
                }
                (_, Some(entry)) => {
                    if !each(entry.0.value(), entry.1.value()) {
                        return Ok(());
                    }
                    below = base.next().transpose()?;
                    continue;
                }
            };
            if let Some(value) = value
                && !each(key, value)
            {
                return Ok(());
            }
        }
    }
}

type Entry<'a> = (&'a [u8], Option<&'a [u8]>);

/// Layers in memory, the first of which hides the others.
struct Merge<'a> {
    layers: Vec<Peekable<Box<dyn Iterator<Item = Entry<'a>> + 'a>>>,
}

impl<'a> Merge<'a> {
    fn push(&mut self, layer: impl Iterator<Item = (&'a Word, &'a Option<Word>)> + 'a) {
        let layer = layer.map(|(key, value)| (key.as_ref(), value.as_deref()));
        self.layers.push((Box::new(layer) as Box<dyn Iterator<Item = Entry<'a>> + 'a>).peekable());
    }

    /// The least key, from the first layer that has it.
    fn first(&mut self) -> Option<Entry<'a>> {
        let mut first: Option<Entry<'a>> = None;
        for layer in &mut self.layers {
            if let Some(entry) = layer.peek()
                && first.is_none_or(|first| entry.0 < first.0)
            {
                first = Some(*entry);
            }
        }
        first
    }

    fn skip(&mut self, key: &[u8]) {
        for layer in &mut self.layers {
            layer.next_if(|entry| entry.0 == key);
        }
    }
}
