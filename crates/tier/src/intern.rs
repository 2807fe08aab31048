//! Equal specs and images are held once: the instances of a workload have the same, and there may be very many.

use std::collections::VecDeque;
use std::sync::Arc;

use model::{Assignment, ImageManifest, InstanceSpec};

/// How many of the latest are compared with; the instances of a workload come close together.
const RECENT_MAX: usize = 32;

#[derive(Debug, Clone, Default)]
pub struct Intern {
    specs: VecDeque<Arc<InstanceSpec>>,
    images: VecDeque<Arc<ImageManifest>>,
}

impl Intern {
    /// Lets the assignment share what is equal to something seen lately.
    pub fn share(&mut self, assignment: &mut Assignment) {
        self.share_parts(&mut assignment.spec, &mut assignment.image);
    }

    pub fn share_parts(&mut self, spec: &mut Arc<InstanceSpec>, image: &mut Arc<ImageManifest>) {
        share(&mut self.specs, spec);
        share(&mut self.images, image);
    }
}

fn share<T: PartialEq>(recent: &mut VecDeque<Arc<T>>, value: &mut Arc<T>) {
    let known = recent.iter().position(|known| Arc::ptr_eq(known, value) || **known == **value);
    match known {
        Some(0) => value.clone_from(&recent[0]),
        Some(at) => {
            value.clone_from(&recent[at]);
            recent.swap(0, at);
        }
        None => {
            recent.truncate(RECENT_MAX - 1);
            recent.push_front(value.clone());
        }
    }
}
