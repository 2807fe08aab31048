//! The question as numbers: classes of services that always stand together, how often each may
//! occur, which may share a machine, and what machines there are.

use std::collections::{BTreeMap, HashSet};

use model::{Error, Result};

use super::lattice::{Lattice, Law, Of};
use super::rule::Rule;
use crate::entity::{ClusterTemplate, RatioTo, ServiceRule};

/// A set of classes.
pub type Set = u128;

/// Most classes of services that one cluster can have.
pub const CLASSES_MAX: usize = 128;

/// What is asked of the search.
#[derive(Debug, Clone)]
pub struct Question<'a> {
    pub template: &'a ClusterTemplate,
    /// Sorted, each once.
    pub services: Vec<String>,
    /// Sorted names of what may be used.
    pub hardware: Vec<String>,
    pub images: Vec<String>,
    /// Machines of the whole cluster.
    pub size: u32,
}

/// Services that stand on the same machines.
#[derive(Debug, Clone)]
pub struct Class {
    pub services: Vec<String>,
    pub weight: u32,
}

/// A machine that can be had, and the classes that may stand on it.
#[derive(Debug, Clone)]
pub struct Palette {
    pub hardware: String,
    pub image: String,
    pub allowed: Set,
}

#[derive(Debug, Clone)]
pub struct Problem {
    /// In the order of their first service's name.
    pub classes: Vec<Class>,
    pub lattice: Lattice,
    /// In order of preference; none is contained in an earlier one.
    pub palettes: Vec<Palette>,
    /// Sets of classes of which no machine carries all.
    pub cants: Vec<Set>,
    /// Services without any constraint: they stand on every machine.
    pub everywhere: Vec<String>,
    /// Whether a machine without any class is one too few.
    pub carry: bool,
}

impl Problem {
    /// The problem of a question, without the rules in `dropped`.
    pub fn new(question: &Question<'_>, dropped: &[Rule]) -> Result<Self> {
        let constraints = &question.template.constraints;
        let dropped: HashSet<&Rule> = dropped.iter().collect();
        let on = |rule: &Rule| !dropped.contains(rule);
        let layout = &constraints.layout;
        let grouped: HashSet<&String> =
            layout.mustcoexist.iter().chain(&layout.cantcoexist).flatten().collect();
        let free = |name: &&String| !constraints.services.contains_key(*name) && !grouped.contains(name);
        let (everywhere, bound): (Vec<&String>, Vec<&String>) = question.services.iter().partition(free);
        let classes =
            classes(&bound, layout.mustcoexist.iter().enumerate().filter(|(i, _)| on(&Rule::Must(*i))));
        if classes.len() > CLASSES_MAX {
            let message =
                format!("the cluster has {} groups of services, more than {CLASSES_MAX}", classes.len());
            return Err(Error::invalid(message));
        }
        let class_of: BTreeMap<&str, usize> = classes
            .iter()
            .enumerate()
            .flat_map(|(at, class)| class.services.iter().map(move |name| (name.as_str(), at)))
            .collect();
        let mut cants: Vec<Set> = layout
            .cantcoexist
            .iter()
            .enumerate()
            .filter(|(at, group)| on(&Rule::Cant(*at)) && !group.is_empty())
            .filter_map(|(_, group)| {
                group
                    .iter()
                    .map(|name| class_of.get(name.as_str()).map(|at| 1 << at))
                    .try_fold(0, |set, bit| bit.map(|bit: Set| set | bit))
            })
            .collect();
        cants.sort_by_key(|set| (set.count_ones(), *set));
        cants.dedup();
        let lattice = lattice(question, &classes, &class_of, &on);
        Ok(Self {
            palettes: palettes(question, &classes, &cants, &on),
            cants,
            everywhere: everywhere.iter().map(|name| (*name).clone()).collect(),
            carry: everywhere.is_empty() && on(&Rule::Carry),
            classes,
            lattice,
        })
    }

    /// Classes that may stand on some machine.
    pub fn placeable(&self) -> Set {
        self.palettes.iter().fold(0, |set, palette| set | palette.allowed)
    }

    /// Whether one machine may carry these classes.
    pub fn fits(&self, set: Set) -> bool {
        !self.cants.iter().any(|cant| cant & set == *cant)
            && (set == 0 || self.palettes.iter().any(|palette| palette.allowed & set == set))
    }

    pub fn weight(&self, set: Set) -> u32 {
        members(set).map(|at| self.classes[at].weight).sum()
    }

    /// The services of a machine with these classes, sorted.
    pub fn services(&self, set: Set) -> Vec<String> {
        let carried = members(set).flat_map(|at| self.classes[at].services.iter());
        let mut names: Vec<String> = carried.chain(&self.everywhere).cloned().collect();
        names.sort();
        names
    }
}

/// The classes of a set, the lowest first.
pub fn members(mut set: Set) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let at = (set != 0).then(|| set.trailing_zeros() as usize)?;
        set &= set - 1;
        Some(at)
    })
}

/// Merges what must share machines, also through a third one.
fn classes<'a>(bound: &[&String], musts: impl Iterator<Item = (usize, &'a Vec<String>)>) -> Vec<Class> {
    let mut label: Vec<usize> = (0..bound.len()).collect();
    for (_, group) in musts {
        let present: Vec<usize> = (0..bound.len()).filter(|at| group.contains(bound[*at])).collect();
        for at in present.iter().skip(1) {
            let (from, to) = (label[*at], label[present[0]]);
            label.iter_mut().filter(|other| **other == from).for_each(|other| *other = to);
        }
    }
    let mut classes: Vec<(usize, Class)> = Vec::new();
    for (at, name) in bound.iter().enumerate() {
        match classes.iter_mut().find(|(seen, _)| *seen == label[at]) {
            Some((_, class)) => class.services.push((*name).clone()),
            None => classes.push((label[at], Class { services: vec![(*name).clone()], weight: 0 })),
        }
    }
    for (_, class) in &mut classes {
        class.weight = u32::try_from(class.services.len()).unwrap_or(u32::MAX);
    }
    classes.into_iter().map(|(_, class)| class).collect()
}

fn lattice(
    question: &Question<'_>,
    classes: &[Class],
    class_of: &BTreeMap<&str, usize>,
    on: &dyn Fn(&Rule) -> bool,
) -> Lattice {
    let size = question.size;
    let mut lattice =
        Lattice { min: vec![0; classes.len()], max: vec![size; classes.len()], laws: Vec::new() };
    for (at, class) in classes.iter().enumerate() {
        for name in &class.services {
            let Some(ServiceRule { quantities, .. }) = question.template.constraints.services.get(name)
            else {
                continue;
            };
            let small = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
            let min = quantities.min.filter(|_| on(&Rule::Min(name.clone()))).map_or(0, small);
            let max = quantities.max.filter(|_| on(&Rule::Max(name.clone()))).map_or(size, small).min(size);
            lattice.min[at] = lattice.min[at].max(min);
            lattice.max[at] = lattice.max[at].min(max);
            let step = quantities.step.filter(|_| on(&Rule::Step(name.clone()))).map_or(1, small).max(1);
            if step > 1 {
                lattice.laws.push(Law::Step { class: at, base: min, step });
            }
            let ratios: Vec<(Of, _)> = match &quantities.ratio {
                Some(_) if !on(&Rule::Ratio(name.clone())) => Vec::new(),
                Some(RatioTo::Machines(ratio)) => vec![(Of::Fixed(size), *ratio)],
                Some(RatioTo::Services(ratios)) => {
                    let of = |of: &String| match class_of.get(of.as_str()) {
                        Some(class) => Some(Of::Class(*class)),
                        None => question.services.contains(of).then_some(Of::Fixed(size)),
                    };
                    ratios.iter().filter_map(|(name, ratio)| Some((of(name)?, *ratio))).collect()
                }
                None => Vec::new(),
            };
            lattice.laws.extend(ratios.into_iter().map(|(of, ratio)| Law::Ratio {
                class: at,
                of,
                ratio,
                low: min,
                high: max.max(min),
                step,
            }));
        }
    }
    lattice
}

fn palettes(
    question: &Question<'_>,
    classes: &[Class],
    cants: &[Set],
    on: &dyn Fn(&Rule) -> bool,
) -> Vec<Palette> {
    let rules = &question.template.constraints.services;
    let allows =
        |list: &[String], wanted: bool, name: &String| !wanted || list.is_empty() || list.contains(name);
    let hardware_fits = |service: &String, name: &String| {
        rules
            .get(service)
            .is_none_or(|rule| allows(&rule.hardwaretypes, on(&Rule::Hardware(service.clone())), name))
    };
    let image_fits = |service: &String, name: &String| {
        rules
            .get(service)
            .is_none_or(|rule| allows(&rule.imagetypes, on(&Rule::Image(service.clone())), name))
    };
    let set = |fits: &dyn Fn(&String) -> bool| -> Set {
        let good = (0..classes.len()).filter(|at| classes[*at].services.iter().all(fits));
        good.fold(0, |set, at| set | 1 << at)
    };
    // A class that cannot be with itself can be nowhere.
    let nowhere = cants.iter().filter(|cant| cant.count_ones() == 1).fold(0, |set, cant| set | cant);
    let by_image: Vec<Set> =
        question.images.iter().map(|image| set(&|name| image_fits(name, image))).collect();
    let mut palettes: Vec<Palette> = Vec::new();
    for hardware in &question.hardware {
        let by_hardware = set(&|name| hardware_fits(name, hardware));
        for (image, by_image) in question.images.iter().zip(&by_image) {
            let allowed = by_hardware & by_image & !nowhere;
            if !palettes.iter().any(|palette| palette.allowed & allowed == allowed) {
                palettes.push(Palette { hardware: hardware.clone(), image: image.clone(), allowed });
            }
        }
    }
    palettes
}
