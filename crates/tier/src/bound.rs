//! What a child may say, cut to size before it is believed: a child that is broken or was taken over must not be
//! able to fill its parent's memory, nor the history of the cloud.

use model::constraint::{LABEL_KEY_MAX, LABEL_VALUE_MAX, LABELS_MAX};
use model::{Facts, Observed, ObservedInstance};

/// Words of a version.
const VERSION_MAX: usize = 64;
/// Architectures, and kinds of runtimes.
const KINDS_MAX: usize = 16;
/// Labels of a node: those of its file and those that it finds itself.
const NODE_LABELS_MAX: usize = 4 * LABELS_MAX;
/// Labels of all nodes of a zone.
const ZONE_LABELS_MAX: usize = 1024;
/// Values of one label.
const VALUES_MAX: usize = 64;
/// Measured ways.
const LEGS_MAX: usize = 64;
/// GPUs of one node.
const NODE_GPUS_MAX: usize = 256;
/// What is said of an instance, and of an event.
const MESSAGE_MAX: usize = 2048;
/// Events of one instance that are taken from one report, the newest.
const EVENTS_MAX: usize = 64;
const EVENT_KIND_MAX: usize = 32;
/// Events of one place are numbered below this, so that the number of the place fits before them.
const EVENT_SEQ_MAX: u64 = u32::MAX as u64;

/// Cuts a report to what a child of this kind can have to say.
pub fn observed(report: &mut Observed, from_zone: bool) {
    facts(&mut report.facts, from_zone);
    for seen in &mut report.set.upserts {
        instance(seen, from_zone);
        if !from_zone && seen.node.is_some() {
            // A node speaks of itself alone.
            seen.node = Some(report.facts.name.clone());
        }
    }
}

fn facts(facts: &mut Facts, from_zone: bool) {
    text(&mut facts.version, VERSION_MAX);
    facts.archs.truncate(KINDS_MAX);
    facts.runtimes.truncate(KINDS_MAX);
    let labels = if from_zone { ZONE_LABELS_MAX } else { NODE_LABELS_MAX };
    let is_key = |key: &str| key.len() <= LABEL_KEY_MAX && !key.chars().any(char::is_control);
    let is_value = |value: &str| value.len() <= LABEL_VALUE_MAX && !value.chars().any(char::is_control);
    facts.labels.retain(|key, _| is_key(key));
    while facts.labels.len() > labels {
        facts.labels.pop_last();
    }
    for values in facts.labels.values_mut() {
        values.retain(|value| is_value(value));
        values.truncate(VALUES_MAX);
        values.shrink_to_fit();
    }
    facts.labels_cut.retain(|key| is_key(key));
    while facts.labels_cut.len() > labels {
        facts.labels_cut.pop_last();
    }
    facts.legs.retain(|name, _| is_key(name));
    while facts.legs.len() > LEGS_MAX {
        facts.legs.pop_last();
    }
    if !from_zone {
        facts.nodes = 1;
        facts.gpus.truncate(NODE_GPUS_MAX);
        facts.gpus.shrink_to_fit();
    }
}

fn instance(seen: &mut ObservedInstance, from_zone: bool) {
    if let Some(message) = &mut seen.message {
        text(message, MESSAGE_MAX);
    }
    if !from_zone {
        seen.events.retain(|event| event.seq <= EVENT_SEQ_MAX);
        seen.explanation = None;
    }
    let surplus = seen.events.len().saturating_sub(EVENTS_MAX);
    seen.events.drain(..surplus);
    for event in &mut seen.events {
        text(&mut event.kind, EVENT_KIND_MAX);
        text(&mut event.message, MESSAGE_MAX);
    }
}

/// Takes away what a terminal would act on, and what is too long.
fn text(text: &mut String, max: usize) {
    if text.len() > max {
        text.truncate(text.floor_char_boundary(max));
        text.shrink_to_fit();
    }
    if text.chars().any(|c| c.is_control() && !matches!(c, '\n' | '\t')) {
        *text =
            text.chars().map(|c| if c.is_control() && !matches!(c, '\n' | '\t') { ' ' } else { c }).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::exchange::Revision;
    use model::{Generation, GpuDevice, InstanceEvent, InstanceId, Phase, RevisionedSet, Timestamp};

    fn report() -> Observed {
        let mut seen =
            ObservedInstance::new(InstanceId::from_random(1), Generation::default(), Phase::Running);
        seen.node = Some("n2".parse().expect("a name"));
        seen.message = Some(format!("\u{1b}[31m{}", "ä".repeat(MESSAGE_MAX)));
        let event = |seq| InstanceEvent {
            seq,
            at: Timestamp(0),
            kind: "started".to_owned(),
            message: "x".repeat(3 * MESSAGE_MAX),
        };
        seen.events = (0..5_000).chain([u64::MAX - 3]).map(event).collect();
        let mut facts = Facts::new("n1".parse().expect("a name"), &"1\u{1b}".repeat(VERSION_MAX));
        facts.nodes = 1_000_000;
        facts.labels = (0..1_000)
            .map(|n| (format!("key{n}"), (0..1_000).map(|value| value.to_string()).collect()))
            .chain([("k".repeat(LABEL_KEY_MAX + 1), Vec::new())])
            .collect();
        facts.gpus = vec![GpuDevice { model: "a100".to_owned(), free_milli: 1000 }; 10_000];
        let set = RevisionedSet {
            base: None,
            at: Revision { epoch: 1, rev: 1 },
            upserts: vec![seen],
            removes: Vec::new(),
            more: false,
            upto: None,
        };
        Observed { facts, set }
    }

    #[test]
    fn a_node_speaks_of_itself_and_in_bounds() {
        let mut said = report();
        observed(&mut said, false);
        let seen = &said.set.upserts[0];
        assert_eq!(seen.node.as_ref().map(ToString::to_string).as_deref(), Some("n1"));
        let message = seen.message.as_ref().expect("stays");
        assert!(message.len() <= MESSAGE_MAX && !message.contains('\u{1b}') && message.contains("ää"));
        assert_eq!(seen.events.len(), EVENTS_MAX);
        assert_eq!(seen.events.last().expect("the newest").seq, 4_999, "a number that leaves no room goes");
        assert!(seen.events.iter().all(|event| event.message.len() == MESSAGE_MAX));
        assert_eq!((said.facts.nodes, said.facts.gpus.len()), (1, NODE_GPUS_MAX));
        assert_eq!(said.facts.labels.len(), NODE_LABELS_MAX);
        assert!(said.facts.labels.values().all(|values| values.len() == VALUES_MAX));
        assert!(said.facts.version.len() <= VERSION_MAX && !said.facts.version.contains('\u{1b}'));
    }

    #[test]
    fn a_zone_stands_for_many_nodes() {
        let mut said = report();
        observed(&mut said, true);
        assert_eq!((said.facts.nodes, said.facts.gpus.len()), (1_000_000, 10_000));
        assert_eq!(said.facts.labels.len(), 1_000);
        assert_eq!(said.set.upserts[0].events.last().expect("the newest").seq, u64::MAX - 3);
        assert_eq!(said.set.upserts[0].node.as_ref().map(ToString::to_string).as_deref(), Some("n2"));
    }

    #[test]
    fn what_is_in_bounds_stays_as_it_is() {
        let mut said = report();
        observed(&mut said, false);
        let mut again = said.clone();
        observed(&mut again, false);
        assert_eq!(said, again);
    }
}
