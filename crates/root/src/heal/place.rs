//! Which zones came and went, and how many nodes they have, for the history.
//!
//! Who was never seen to be there is not missed, so that the start of a server tells nothing.

use std::collections::BTreeMap;

use model::{ZoneId, counted};

/// A zone as it is now.
pub struct Now {
    pub live: bool,
    /// Nodes that are there, as far as the zone has said.
    pub nodes: Option<u32>,
}

#[derive(Debug, Default)]
struct Seen {
    live: bool,
    /// The number that the history knows.
    nodes: Option<u32>,
    /// Another number, which counts once it is seen twice: a zone that just started does not know its nodes yet.
    next: Option<u32>,
}

/// What was seen of the zones in the last round.
#[derive(Debug, Default)]
pub struct Places(BTreeMap<ZoneId, Seen>);

impl Places {
    /// Lines for the history, each with its kind: what is different from the round before.
    pub fn look(
        &mut self,
        zones: impl Iterator<Item = (ZoneId, Now)>,
    ) -> Vec<(ZoneId, &'static str, String)> {
        let mut before = std::mem::take(&mut self.0);
        let mut lines = Vec::new();
        for (id, now) in zones {
            let known = before.remove(&id);
            let mut seen = match known {
                Some(seen) => seen,
                // It counts from when it was first there.
                None if now.live => Seen { live: true, nodes: now.nodes, next: None },
                None => continue,
            };
            match (seen.live, now.live) {
                (true, false) => {
                    lines.push((id.clone(), "zone.lost", "it is not connected any more".to_owned()));
                }
                (false, true) => lines.push((id.clone(), "zone.back", "it is connected again".to_owned())),
                _ => {}
            }
            seen.live = now.live;
            if now.live {
                lines.extend(nodes_line(&mut seen, now.nodes).map(|text| (id.clone(), "zone.nodes", text)));
            }
            self.0.insert(id, seen);
        }
        lines
    }
}

fn nodes_line(seen: &mut Seen, now: Option<u32>) -> Option<String> {
    if now.is_none() || now == seen.nodes {
        seen.next = None;
        return None;
    }
    if seen.next != now {
        seen.next = now;
        return None;
    }
    seen.next = None;
    let count = now.unwrap_or(0);
    let are = if count == 1 { "is" } else { "are" };
    let text = format!("{} {are} there, {} before", counted(count.into(), "node"), seen.nodes.unwrap_or(0));
    seen.nodes = now;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changed_is_told_once() {
        let (mut places, id) = (Places::default(), ZoneId::from_random(7));
        let mut round = |live: bool, nodes: u32| {
            let now = Now { live, nodes: Some(nodes) };
            let lines = places.look([(id.clone(), now)].into_iter());
            lines.into_iter().map(|(_, what, text)| format!("{what} {text}")).collect::<Vec<_>>().join("; ")
        };
        // Who is away when the server starts is not told of.
        assert_eq!(round(false, 2), "");
        assert_eq!(round(true, 2), "");
        assert_eq!(round(true, 2), "");
        assert_eq!(round(false, 2), "zone.lost it is not connected any more");
        assert_eq!(round(false, 2), "");
        assert_eq!(round(true, 0), "zone.back it is connected again");
        // It found its nodes again before the next round.
        assert_eq!(round(true, 2), "");
        assert_eq!(round(true, 1), "");
        assert_eq!(round(true, 1), "zone.nodes 1 node is there, 2 before");
        assert_eq!(round(true, 1), "");
    }
}
