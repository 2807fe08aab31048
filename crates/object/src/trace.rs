//! What is known of a request once it passed the gate: for the access log, metrics and traces.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use crate::service::Caller;

/// Put into a request's extensions by the listener, filled by the gate, read by the listener afterwards.
#[derive(Debug, Clone, Default)]
pub struct Trace(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    seen: OnceLock<Seen>,
    by_acl: AtomicBool,
    passed: AtomicBool,
    each: OnceLock<Vec<Each>>,
}

/// What became of one object of a request about many.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Each {
    pub key: String,
    pub version_id: Option<String>,
    pub status: u16,
    /// The code of an error.
    pub code: Option<String>,
}

#[derive(Debug, Clone)]
pub struct Seen {
    pub operation: String,
    pub bucket: Option<String>,
    pub key: Option<String>,
    pub caller: Caller,
}

impl Trace {
    pub fn note(&self, seen: Seen) {
        // A request passes the gate once; a second note would say the same.
        let _ = self.0.seen.set(seen);
    }

    pub fn seen(&self) -> Option<&Seen> {
        self.0.seen.get()
    }

    /// Notes that the request may do what it asks for.
    pub fn note_passed(&self) {
        self.0.passed.store(true, Ordering::Relaxed);
    }

    pub fn has_passed(&self) -> bool {
        self.0.passed.load(Ordering::Relaxed)
    }

    /// Notes that only a list of rights let the request pass.
    pub fn note_acl(&self) {
        self.0.by_acl.store(true, Ordering::Relaxed);
    }

    pub fn is_by_acl(&self) -> bool {
        self.0.by_acl.load(Ordering::Relaxed)
    }

    /// Notes what became of the objects of a request about many.
    pub fn note_each(&self, each: Vec<Each>) {
        let _ = self.0.each.set(each);
    }

    pub fn each(&self) -> &[Each] {
        self.0.each.get().map_or(&[], Vec::as_slice)
    }
}
