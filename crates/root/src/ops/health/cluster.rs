//! How clusters and those who carry out their tasks are.

use api::ClusterStatus;
use model::{Check, Light, Timestamp};

use crate::cloud::Cloud;
use crate::state::Snapshot;

/// A job that has not got on for so long is told of.
const SLOW_MS: i64 = 30 * 60_000;
/// Names that one check shows.
const SHOWN_MAX: usize = 5;

/// What is known of the tasks; only the server that gives them out knows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Work {
    /// Tasks that could be done now.
    pub ready: u32,
    /// Provisioners that are there.
    pub live: Vec<String>,
}

/// Nothing where nobody uses clusters.
pub fn checks(cloud: &Cloud, snapshot: &Snapshot, at: Timestamp) -> Vec<Check> {
    let work = cloud.clusters.with(|desk| {
        let ready = desk.load().ready;
        Work { ready, live: desk.hands.keys().cloned().collect() }
    });
    let mut checks = Vec::new();
    if snapshot.clusters.is_empty() && snapshot.provisioners.is_empty() {
        return checks;
    }
    if let Some(work) = work {
        let known = snapshot.provisioners.values();
        let names = known.map(|row| (row.id.to_string(), row.name.to_string())).collect::<Vec<_>>();
        checks.push(provisioners(&names, &work, at));
    }
    checks.push(clusters(snapshot, at));
    checks
}

/// Whether somebody is there to do what is to be done.
fn provisioners(known: &[(String, String)], work: &Work, at: Timestamp) -> Check {
    let check = |light, message: String| Check::new("provisioners", "root", light, message, at);
    let silent: Vec<&str> =
        known.iter().filter(|(id, _)| !work.live.contains(id)).map(|(_, name)| name.as_str()).collect();
    match (work.live.len(), work.ready, silent.as_slice()) {
        (0, ready, _) if ready > 0 => {
            let message = format!("no provisioner is there, and {ready} tasks of clusters wait for one");
            check(Light::Red, message)
                .hint("start one with 'banyan provisioner', or see why those there are do not reach root")
        }
        (live, _, []) => check(Light::Green, format!("{live} are there")),
        (live, _, silent) => {
            let message = format!("{live} are there; not heard: {}", shown(silent));
            check(Light::Yellow, message).hint("start it, or take it off with 'banyan provisioner remove'")
        }
    }
}

/// Whether clusters are as they should be, and their jobs get on.
fn clusters(snapshot: &Snapshot, at: Timestamp) -> Check {
    let check = |light, message: String| Check::new("clusters", "root", light, message, at);
    let of = |status: ClusterStatus| {
        let rows = snapshot.clusters.values().filter(move |row| row.status == status);
        rows.map(|row| row.name.as_str()).collect::<Vec<&str>>()
    };
    let (left, degraded) = (of(ClusterStatus::Incomplete), of(ClusterStatus::Degraded));
    let slow: Vec<&str> = snapshot
        .cluster_open
        .values()
        .filter_map(|(cluster, number)| {
            let job = snapshot.cluster_job(cluster, *number)?;
            let row = snapshot.clusters.get(cluster)?;
            (!row.paused && job.created_at.plus_ms(SLOW_MS) < at).then_some(row.name.as_str())
        })
        .collect();
    match (left.as_slice(), slow.as_slice()) {
        ([], _) if !degraded.is_empty() => {
            let message = format!("machines are gone or down: {}", shown(&degraded));
            check(Light::Yellow, message)
                .hint("'banyan cluster get' says which; 'banyan cluster repair' makes anew what is gone")
        }
        ([], []) => check(Light::Green, format!("{} clusters", snapshot.clusters.len())),
        (left @ [_, ..], _) => {
            let message = format!("machines are left that could not be deleted: {}", shown(left));
            check(Light::Yellow, message).hint("'banyan cluster get' says why; delete them again")
        }
        (_, slow) => {
            let message = format!("jobs go on for more than {} min: {}", SLOW_MS / 60_000, shown(slow));
            check(Light::Yellow, message).hint("'banyan cluster logs' shows what they do")
        }
    }
}

fn shown(names: &[&str]) -> String {
    let more = names.len().saturating_sub(SHOWN_MAX);
    let first = names.iter().take(SHOWN_MAX).copied().collect::<Vec<_>>().join(", ");
    if more == 0 { first } else { format!("{first} and {more} more") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_told_and_want_is_red() {
        let known = [("prv-1".to_owned(), "hand".to_owned()), ("prv-2".to_owned(), "foot".to_owned())];
        let at = Timestamp(0);
        let work =
            |ready, live: &[&str]| Work { ready, live: live.iter().map(|id| (*id).to_owned()).collect() };
        assert_eq!(provisioners(&known, &work(5, &["prv-1", "prv-2"]), at).light, Light::Green);
        let one = provisioners(&known, &work(5, &["prv-1"]), at);
        assert_eq!((one.light, one.message.as_str()), (Light::Yellow, "1 are there; not heard: foot"));
        assert_eq!(provisioners(&known, &work(5, &[]), at).light, Light::Red);
        assert_eq!(provisioners(&known, &work(0, &[]), at).light, Light::Yellow);
        assert_eq!(clusters(&Snapshot::default(), at).light, Light::Green);
    }
}
