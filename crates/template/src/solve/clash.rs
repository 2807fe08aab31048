//! Why there is no layout: a set of demands that cannot all be met, and that could without any one of them.

use std::collections::{HashMap, HashSet};

use model::Result;

use super::Unsolvable;
use super::budget::Budget;
use super::cover::Cover;
use super::problem::{Problem, Question, Set, members};
use super::rule::Rule;
use super::search::Search;

/// Most demands that the sentence repeats; the list has all.
const TOLD_MAX: usize = 12;

/// Explains why there is no layout. Each demand is left out in turn; if there is still
/// no layout it was not to blame. When time runs out the set is not the smallest, but it clashes.
pub fn explain(question: &Question<'_>, budget: &mut Budget<'_>) -> Result<Unsolvable> {
    let rules = Rule::all(question.template, &question.services);
    let blamed = match crowd(question)? {
        Some(crowd) => crowd,
        None => sifted(question, &rules, budget)?,
    };
    let blamed: Vec<_> = rules
        .iter()
        .filter(|rule| blamed.contains(rule))
        .map(|rule| rule.told(question.template, &question.services))
        .collect();
    let size = question.size;
    let machines = if size == 1 { "1 machine".to_owned() } else { format!("{size} machines") };
    let told: Vec<&str> = blamed.iter().map(|conflict| conflict.text.as_str()).collect();
    let reason = match told.as_slice() {
        [] => format!("no layout of {machines} exists"),
        [one] => format!("no layout of {machines} exists, because {one}"),
        many => {
            let shown = many[..many.len().min(TOLD_MAX)].join("; ");
            let more = match many.len().saturating_sub(TOLD_MAX) {
                0 => String::new(),
                more => format!("; and {more} more"),
            };
            format!("no layout of {machines} meets all of these at once: {shown}{more}")
        }
    };
    Ok(Unsolvable { reason, conflicts: blamed })
}

/// A clash that is seen at once: services that exclude each other need more machines than there are. Nobody is
/// in it without whom the others would fit, so that no part of it clashes.
fn crowd(question: &Question<'_>) -> Result<Option<HashSet<Rule>>> {
    let problem = Problem::new(question, &[])?;
    if !problem.lattice.laws.is_empty() || problem.classes.iter().any(|class| class.weight > 1) {
        return Ok(None);
    }
    let need = |at: usize| u64::from(problem.lattice.min[at]);
    let needed = |set: Set| members(set).map(need).sum::<u64>();
    let cover = Cover::new(&problem);
    let Some(mut crowd) = cover.cliques().find(|clique| needed(*clique) > u64::from(question.size)) else {
        return Ok(None);
    };
    let mut by_need: Vec<usize> = members(crowd).collect();
    by_need.sort_by_key(|at| need(*at));
    for at in by_need {
        if needed(crowd & !(1 << at)) > u64::from(question.size) {
            crowd &= !(1 << at);
        }
    }
    let names: Vec<&String> = members(crowd).map(|at| &problem.classes[at].services[0]).collect();
    let mut pairs: HashMap<(&String, &String), usize> = HashMap::new();
    for (at, group) in question.template.constraints.layout.cantcoexist.iter().enumerate() {
        if let [one, other] = group.as_slice() {
            pairs.entry((one.min(other), one.max(other))).or_insert(at);
        }
    }
    let mut rules: HashSet<Rule> = names.iter().map(|name| Rule::Min((*name).clone())).collect();
    for (at, one) in names.iter().enumerate() {
        for other in &names[at + 1..] {
            // What hardware keeps apart is not as plain.
            let Some(pair) = pairs.get(&(*one.min(other), *one.max(other))) else { return Ok(None) };
            rules.insert(Rule::Cant(*pair));
        }
    }
    Ok(Some(rules))
}

/// Leaves out one part of the rules after the other, as long as there is still no layout.
fn sifted(question: &Question<'_>, rules: &[Rule], budget: &mut Budget<'_>) -> Result<HashSet<Rule>> {
    let has_laws = rules.iter().any(|rule| matches!(rule, Rule::Step(_) | Rule::Ratio(_)));
    let mut sieve = Sieve { question, dropped: Vec::new() };
    loop {
        let left: Vec<Rule> = rules.iter().filter(|rule| !sieve.dropped.contains(rule)).cloned().collect();
        let before = sieve.dropped.len();
        sieve.drop_from(&left, budget)?;
        // Limits also bound what steps and ratios ask for, so that one rule can free another that stood before it.
        if sieve.dropped.len() == before || !has_laws {
            break;
        }
    }
    Ok(rules.iter().filter(|rule| !sieve.dropped.contains(rule)).cloned().collect())
}

/// What is asked, and the rules that are not to blame.
struct Sieve<'q> {
    question: &'q Question<'q>,
    dropped: Vec<Rule>,
}

impl Sieve<'_> {
    /// Drops as many of the rules as can be without there being a layout, in large parts first.
    fn drop_from(&mut self, rules: &[Rule], budget: &mut Budget<'_>) -> Result<()> {
        if rules.is_empty() {
            return Ok(());
        }
        let kept = self.dropped.len();
        self.dropped.extend_from_slice(rules);
        let problem = Problem::new(self.question, &self.dropped)?;
        let used = vec![0; problem.classes.len()];
        if Search::new(&problem).possible(&used, self.question.size, budget) == Ok(false) {
            return Ok(());
        }
        self.dropped.truncate(kept);
        if rules.len() > 1 {
            let (one, other) = rules.split_at(rules.len() / 2);
            self.drop_from(one, budget)?;
            self.drop_from(other, budget)?;
        }
        Ok(())
    }
}
