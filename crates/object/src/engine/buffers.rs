//! Buffers that are used again: a fresh one of this size costs a page fault for every 4 KiB of it.

use std::sync::{Arc, Mutex};

/// Buffers that wait to be used again.
const KEPT_MAX: usize = 16;

pub(super) struct Buffers {
    size: usize,
    kept: Mutex<Vec<Vec<u8>>>,
}

impl Buffers {
    pub fn new(size: usize) -> Arc<Self> {
        Arc::new(Self { size, kept: Mutex::default() })
    }

    /// A buffer that holds `length` bytes, at most its size, of whatever was in it.
    pub fn lease(self: &Arc<Self>, length: usize) -> Lease {
        debug_assert!(length <= self.size);
        let kept = self.kept.lock().expect("no panic under this lock").pop();
        Lease { bytes: kept.unwrap_or_else(|| vec![0; self.size]), length, home: self.clone() }
    }
}

/// A buffer on loan.
pub(super) struct Lease {
    bytes: Vec<u8>,
    length: usize,
    home: Arc<Buffers>,
}

impl AsRef<[u8]> for Lease {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl AsMut<[u8]> for Lease {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.length]
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut kept = self.home.kept.lock().expect("no panic under this lock");
        if kept.len() < KEPT_MAX {
            kept.push(std::mem::take(&mut self.bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_come_back_and_not_too_many_are_kept() {
        let buffers = Buffers::new(8);
        let mut lease = buffers.lease(3);
        lease.as_mut().copy_from_slice(b"abc");
        assert_eq!(lease.as_ref(), b"abc");
        let many: Vec<_> = (0..2 * KEPT_MAX).map(|_| buffers.lease(8)).collect();
        drop(many);
        drop(lease);
        assert_eq!(buffers.kept.lock().unwrap().len(), KEPT_MAX);
        assert_eq!(buffers.lease(8).as_ref().len(), 8);
    }
}
