//! How many workers each provisioner has for each tenant. No I/O.
//!
//! Every tenant that has something to do gets as many as the others, none more than it can use, and what one does not
//! use is shared by the rest: who asks for more does not get more. The workers of a tenant are spread over provisioners, and stay where they
//! are as long as that is fair. Who can do no job of a tenant for want of plugins has no workers for it, as long as
//! another can.

use std::collections::{BTreeMap, BTreeSet};

use model::TenantId;

/// By provisioner and tenant.
pub type Workers = BTreeMap<String, BTreeMap<TenantId, u32>>;
/// Provisioners that are not to work for a tenant.
pub type Barred = BTreeSet<(String, TenantId)>;

/// Whether one that has these plugins can do what needs those; none means that it did not say, and has all.
pub fn can(has: &BTreeSet<String>, needs: &BTreeSet<String>) -> bool {
    has.is_empty() || needs.is_subset(has)
}

/// `needs`: the plugins of each job that a tenant has under way. `hands`: those of each provisioner.
pub fn barred(
    needs: &BTreeMap<TenantId, BTreeSet<&BTreeSet<String>>>,
    hands: &BTreeMap<&str, &BTreeSet<String>>,
) -> Barred {
    let mut barred = Barred::new();
    for (tenant, jobs) in needs {
        let can = |has: &BTreeSet<String>| jobs.iter().any(|needs| can(has, needs));
        let unfit = hands.iter().filter(|(_, has)| !can(has));
        let unfit: Barred = unfit.map(|(name, _)| ((*name).to_owned(), tenant.clone())).collect();
        // If nobody can, whoever is asked says so.
        if unfit.len() < hands.len() {
            barred.extend(unfit);
        }
    }
    barred
}

/// How many workers each tenant is to have in all.
fn shares(loads: &BTreeMap<TenantId, u32>, room: u32) -> BTreeMap<TenantId, u32> {
    // Those with the least to do first: what they do not use is for those after them.
    let mut order: Vec<(u32, &TenantId)> =
        loads.iter().filter(|(_, load)| **load > 0).map(|(tenant, load)| (*load, tenant)).collect();
    order.sort_unstable();
    // Where there are too few for all, those with little to do are soon out of the way.
    order.truncate(room as usize);
    let count = order.len();
    let mut left = room;
    let mut shares = BTreeMap::new();
    for (at, (load, tenant)) in order.into_iter().enumerate() {
        // Rounded down, so that what cannot be parted goes to whoever has most to do.
        let share = load.min(left / (count - at) as u32);
        left -= share;
        shares.insert(tenant.clone(), share);
    }
    shares
}

/// `loads`: tasks that each tenant could have done now or is having done. `capacities`: by provisioner.
pub fn assign(
    loads: &BTreeMap<TenantId, u32>,
    capacities: &BTreeMap<String, u32>,
    barred: &Barred,
    before: &Workers,
) -> Workers {
    let room: u32 = capacities.values().fold(0, |sum, one| sum.saturating_add(*one));
    let shares = shares(loads, room);
    let mut free = capacities.clone();
    let mut workers: Workers = capacities.keys().map(|name| (name.clone(), BTreeMap::new())).collect();
    // An even spread leaves none of them with more than its part, by begun parts.
    let count = capacities.values().filter(|capacity| **capacity > 0).count() as u32;
    // Those that cannot go everywhere come first, or the others could leave them no room.
    let (bound, others): (Vec<_>, Vec<_>) =
        shares.iter().partition(|(tenant, _)| barred.iter().any(|(_, of)| of == *tenant));
    for tenants in [bound, others] {
        let mut wanted: Vec<(&TenantId, u32)> = Vec::new();
        for (tenant, share) in tenants {
            let places = count.saturating_sub(barred.iter().filter(|(_, of)| of == tenant).count() as u32);
            let part = share.div_ceil(places.max(1));
            let mut want = *share;
            for (name, own) in before.iter().filter(|(name, _)| !is_barred(barred, name, tenant)) {
                let (Some(free), Some(had)) = (free.get_mut(name), own.get(tenant)) else { continue };
                let kept = (*had).min(want).min(*free).min(part);
                if kept > 0 {
                    want -= kept;
                    *free -= kept;
                    workers.entry(name.clone()).or_default().insert(tenant.clone(), kept);
                }
            }
            wanted.push((tenant, want));
        }
        for (tenant, want) in wanted {
            let mut open = free.clone();
            open.retain(|name, _| !is_barred(barred, name, tenant));
            spread(tenant, want, &mut open, &mut workers);
            free.extend(open);
        }
    }
    workers
}

fn is_barred(barred: &Barred, name: &str, tenant: &TenantId) -> bool {
    barred.iter().any(|(other, of)| other == name && of == tenant)
}

/// Gives a tenant so many more workers: where it has few, and among those where there is most room. Those with equally
/// few are raised together, because there may be ten thousand to give.
fn spread(tenant: &TenantId, mut want: u32, free: &mut BTreeMap<String, u32>, workers: &mut Workers) {
    while want > 0 {
        let of = |name: &String| workers.get(name).and_then(|own| own.get(tenant)).copied().unwrap_or(0);
        let open: Vec<(u32, String, u32)> = free
            .iter()
            .filter(|(_, free)| **free > 0)
            .map(|(name, free)| (of(name), name.clone(), *free))
            .collect();
        let Some(least) = open.iter().map(|(has, ..)| *has).min() else { return };
        let next = open.iter().map(|(has, ..)| *has).filter(|has| *has > least).min().unwrap_or(u32::MAX);
        let mut lowest: Vec<(u32, String)> =
            open.into_iter().filter(|(has, ..)| *has == least).map(|(_, name, free)| (free, name)).collect();
        lowest.sort_by_key(|(free, _)| std::cmp::Reverse(*free));
        let room = lowest.last().map_or(0, |(free, _)| *free);
        let each = (want / lowest.len() as u32).min(next - least).min(room);
        // Too few for all of them: one each, where there is most room.
        let count = if each == 0 { want as usize } else { lowest.len() };
        for (_, name) in lowest.into_iter().take(count) {
            let given = each.max(1);
            *free.get_mut(&name).expect("it was found there") -= given;
            *workers.entry(name).or_default().entry(tenant.clone()).or_default() += given;
            want -= given;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(number: u128) -> TenantId {
        TenantId::from_random(number)
    }

    fn loads(all: &[u32]) -> BTreeMap<TenantId, u32> {
        (1..).zip(all).map(|(number, load)| (tenant(number), *load)).collect()
    }

    fn capacities(all: &[u32]) -> BTreeMap<String, u32> {
        (1..).zip(all).map(|(number, capacity): (u32, _)| (format!("p{number}"), *capacity)).collect()
    }

    fn total(workers: &Workers, of: u128) -> u32 {
        workers.values().filter_map(|own| own.get(&tenant(of))).sum()
    }

    #[test]
    fn all_get_the_same_as_far_as_they_can_use_it() {
        let workers =
            assign(&loads(&[1_000, 1, 100, 0]), &capacities(&[10, 10]), &Barred::new(), &Workers::new());
        let each: Vec<u32> = (1..=4).map(|of| total(&workers, of)).collect();
        assert_eq!(each, [10, 1, 9, 0], "who asks for more gets only what cannot be parted: {workers:?}");
        let one = &workers["p1"][&tenant(1)];
        let other = &workers["p2"][&tenant(1)];
        assert!(one.abs_diff(*other) <= 1, "spread: {workers:?}");
        let flood = assign(&loads(&[100_000, 50]), &capacities(&[40]), &Barred::new(), &Workers::new());
        assert_eq!((total(&flood, 1), total(&flood, 2)), (20, 20), "{flood:?}");
    }

    #[test]
    fn nobody_gets_more_than_it_can_use_and_too_many_wait() {
        let workers = assign(&loads(&[2, 3]), &capacities(&[100]), &Barred::new(), &Workers::new());
        assert_eq!((total(&workers, 1), total(&workers, 2)), (2, 3));
        let crowd = assign(&loads(&[5, 5, 5, 5]), &capacities(&[2]), &Barred::new(), &Workers::new());
        assert_eq!(crowd["p1"].values().sum::<u32>(), 2);
        let small = assign(&loads(&[5, 90, 1, 7]), &capacities(&[2]), &Barred::new(), &Workers::new());
        assert_eq!((total(&small, 1), total(&small, 3)), (1, 1), "the least first: {small:?}");
        assert!(assign(&loads(&[5]), &capacities(&[]), &Barred::new(), &Workers::new()).is_empty());
    }

    #[test]
    fn many_are_spread_evenly_as_far_as_there_is_room() {
        let all =
            assign(&loads(&[10_000, 4]), &capacities(&[7_000, 100, 5_000]), &Barred::new(), &Workers::new());
        assert_eq!((total(&all, 1), total(&all, 2)), (10_000, 4));
        assert_eq!(all["p2"].values().sum::<u32>(), 100, "{all:?}");
        let (one, other) = (all["p1"].values().sum::<u32>(), all["p3"].values().sum::<u32>());
        assert!(other == 5_000 || one.abs_diff(other) <= 2, "{all:?}");
    }

    #[test]
    fn workers_stay_and_move_when_provisioners_come_and_go() {
        let first = assign(&loads(&[8, 8]), &capacities(&[8, 8]), &Barred::new(), &Workers::new());
        assert_eq!(assign(&loads(&[8, 8]), &capacities(&[8, 8]), &Barred::new(), &first), first);
        let alone = assign(&loads(&[8, 8]), &capacities(&[8]), &Barred::new(), &first);
        assert_eq!(alone["p1"].values().sum::<u32>(), 8);
        assert_eq!(alone["p1"].len(), 2, "both tenants are served: {alone:?}");
        let back = assign(&loads(&[8, 8]), &capacities(&[8, 8]), &Barred::new(), &alone);
        assert_eq!((total(&back, 1), total(&back, 2)), (8, 8));
    }

    #[test]
    fn who_lacks_a_plugin_is_passed_over_as_long_as_another_has_it() {
        let set = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<BTreeSet<String>>();
        let (plain, more, all) = (set(&["a"]), set(&["a", "b"]), set(&[]));
        let hands = BTreeMap::from([("p1", &plain), ("p2", &more)]);
        let strange = set(&["c"]);
        let needs = BTreeMap::from([
            (tenant(1), BTreeSet::from([&plain])),
            (tenant(2), BTreeSet::from([&more, &strange])),
            (tenant(3), BTreeSet::from([&strange])),
            (tenant(4), BTreeSet::from([&more, &plain])),
        ]);
        let found = barred(&needs, &hands);
        assert_eq!(
            found,
            Barred::from([("p1".to_owned(), tenant(2))]),
            "nobody has c, so anybody may say so"
        );
        assert!(barred(&needs, &BTreeMap::from([("p1", &all)])).is_empty(), "who does not say has all");
        let workers = assign(&loads(&[4, 4]), &capacities(&[4, 4]), &found, &Workers::new());
        assert!(!workers["p1"].contains_key(&tenant(2)), "{workers:?}");
        assert_eq!((total(&workers, 1), total(&workers, 2)), (4, 4), "{workers:?}");
        let again = assign(&loads(&[4, 4]), &capacities(&[4, 4]), &found, &workers);
        assert_eq!(again, workers);
        // The only one that fits is full of others' workers, who give way.
        let full = Workers::from([("p2".to_owned(), BTreeMap::from([(tenant(1), 4)]))]);
        let moved = assign(&loads(&[7, 1]), &capacities(&[4, 4]), &found, &full);
        assert_eq!(moved["p2"].get(&tenant(2)), Some(&1), "{moved:?}");
    }
}
