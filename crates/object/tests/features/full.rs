//! A disk without room, as clients meet it.

use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use crate::bed::{Bed, user};
use crate::{good, until};

/// A small disk, gone when dropped.
struct Disk(tempfile::TempDir);

impl Disk {
    fn new(size: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = std::ffi::CString::new(format!("size={size}")).unwrap();
        mount("tmpfs", folder.path(), "tmpfs", MountFlags::empty(), options.as_c_str())
            .expect("mounting needs root");
        Self(folder)
    }

    fn data(&self) -> PathBuf {
        self.0.path().join("data")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        unmount(self.0.path(), UnmountFlags::DETACH).unwrap();
    }
}

async fn on(data: &Path) -> Bed {
    Bed::start_with(|config| config.data = data.to_owned()).await
}

fn body(number: usize, size: usize) -> String {
    format!("{number:08}").repeat(size / 8)
}

#[tokio::test]
async fn a_full_disk_is_told_and_loses_nothing() {
    let disk = Disk::new("64m");
    let mut bed = on(&disk.data()).await;
    let admin = user("admin");
    good(&bed, &admin, "PUT", "/box", "").await;
    let mut kept = Vec::new();
    let refused = loop {
        let number = kept.len();
        assert!(number < 1000, "the disk does not fill");
        let size = if number % 2 == 0 { 400_000 } else { 8_000 };
        let answer = bed.call(&admin, "PUT", &format!("/box/k{number}"), &body(number, size)).await;
        match answer.status {
            200 => kept.push(size),
            _ => break answer,
        }
    };
    assert_eq!((refused.status, refused.code()), (503, "ServiceUnavailable"), "{}", refused.body);
    assert!(kept.len() > 20, "{} objects", kept.len());
    for round in 0..2 {
        for (number, size) in kept.iter().enumerate() {
            let found = good(&bed, &admin, "GET", &format!("/box/k{number}"), "").await;
            assert!(found == body(number, *size), "k{number} in round {round}");
        }
        let missing = bed.call(&admin, "GET", &format!("/box/k{}", kept.len()), "").await;
        assert_eq!(missing.code(), "NoSuchKey", "what was refused is not there");
        bed.stop().await;
        bed = on(&disk.data()).await;
    }
    // Room that deletes make is used again.
    for number in 0..kept.len() / 2 {
        good(&bed, &admin, "DELETE", &format!("/box/k{number}"), "").await;
    }
    until("there is room again", async || {
        bed.call(&admin, "PUT", "/box/after", &body(7, 400_000)).await.status == 200
    })
    .await;
    assert_eq!(good(&bed, &admin, "GET", "/box/after", "").await, body(7, 400_000));
    bed.stop().await;
}
