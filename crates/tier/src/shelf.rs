//! A map by instance id for large values.
//!
//! A million instances are searched by id at every step and read seldom. With its values in boxes the tree is a tenth as
//! large, and a search stays in what the processor has at hand.

use std::collections::BTreeMap;

use model::InstanceId;

#[derive(Debug, Clone)]
pub(crate) struct Shelf<V>(BTreeMap<InstanceId, Box<V>>);

impl<V> Default for Shelf<V> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<V> FromIterator<(InstanceId, V)> for Shelf<V> {
    fn from_iter<I: IntoIterator<Item = (InstanceId, V)>>(items: I) -> Self {
        Self(items.into_iter().map(|(id, value)| (id, Box::new(value))).collect())
    }
}

impl<V> Shelf<V> {
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn contains_key(&self, id: &InstanceId) -> bool {
        self.0.contains_key(id)
    }

    pub fn get(&self, id: &InstanceId) -> Option<&V> {
        self.0.get(id).map(|value| &**value)
    }

    pub fn get_mut(&mut self, id: &InstanceId) -> Option<&mut V> {
        self.0.get_mut(id).map(|value| &mut **value)
    }

    pub fn insert(&mut self, id: InstanceId, value: V) -> Option<V> {
        self.0.insert(id, Box::new(value)).map(|old| *old)
    }

    pub fn remove(&mut self, id: &InstanceId) -> Option<V> {
        self.0.remove(id).map(|old| *old)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&InstanceId, &V)> {
        self.0.iter().map(|(id, value)| (id, &**value))
    }

    pub fn keys(&self) -> impl Iterator<Item = &InstanceId> {
        self.0.keys()
    }

    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.0.values().map(|value| &**value)
    }

    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.0.values_mut().map(|value| &mut **value)
    }

    pub fn into_keys(self) -> impl Iterator<Item = InstanceId> {
        self.0.into_keys()
    }
}
