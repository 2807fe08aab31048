//! What the command line makes of a cloud's answers: waiting, failing, trying
//! again. The cloud here is scripted, so that rare answers come when they should.
#![allow(clippy::unwrap_used)]

mod cluster;
mod fake;
mod instance;
mod operations;
mod workload;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[track_caller]
fn says(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{text}\ndoes not say '{part}'");
    }
}
