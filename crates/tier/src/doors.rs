//! One door per child: it waits there for its desired set, and is let in when that changed.

use std::collections::HashMap;
use std::sync::Mutex;

use model::exchange::Revision;
use model::{ChildId, Desired};
use tokio::sync::watch;

#[derive(Default)]
pub struct Doors(Mutex<HashMap<ChildId, watch::Sender<u64>>>);

impl Doors {
    pub fn new() -> Self {
        Self::default()
    }

    fn door(&self, child: &ChildId) -> watch::Receiver<u64> {
        let mut doors = self.0.lock().expect("no holder of the doors panics");
        doors.entry(child.clone()).or_insert_with(|| watch::channel(0).0).subscribe()
    }

    /// The desired set of these children changed.
    pub fn open(&self, children: impl IntoIterator<Item = ChildId>) {
        let doors = self.0.lock().expect("no holder of the doors panics");
        for child in children {
            if let Some(door) = doors.get(&child) {
                door.send_modify(|count| *count += 1);
            }
        }
    }

    /// Waits until `read` has something for the child. The door is taken
    /// before the first look, so that no change falls in between.
    pub async fn wait(
        &self,
        child: &ChildId,
        have: Option<Revision>,
        read: impl Fn(&ChildId, Option<Revision>) -> Option<Desired>,
    ) -> Desired {
        let mut door = self.door(child);
        loop {
            door.borrow_and_update();
            if let Some(desired) = read(child, have) {
                return desired;
            }
            if door.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}
