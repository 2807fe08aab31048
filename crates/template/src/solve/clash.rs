//! Why there is no layout: a set of demands that cannot all be met, and that could without any one of them.

use model::Result;

use super::budget::Budget;
use super::problem::{Problem, Question};
use super::rule::Rule;
use super::search::Search;
use super::{Group, Unsolvable};

/// Most demands that the sentence repeats; the list has all.
const TOLD_MAX: usize = 12;

/// Explains why `machines` cannot be filled beside those that are there. Each demand is left out in turn; if there is still
/// no layout it was not to blame. When time runs out the set is not the smallest, but it clashes.
pub fn explain(
    question: &Question<'_>,
    standing: &[Group],
    machines: u32,
    budget: &mut Budget<'_>,
) -> Result<Unsolvable> {
    let rules = Rule::all(question.template, &question.services);
    let mut dropped: Vec<Rule> = Vec::new();
    let has_laws = rules.iter().any(|rule| matches!(rule, Rule::Step(_) | Rule::Ratio(_)));
    loop {
        let before = dropped.len();
        for rule in &rules {
            if dropped.contains(rule) {
                continue;
            }
            dropped.push(rule.clone());
            let problem = Problem::new(question, &dropped)?;
            let used = super::live::used(&problem, standing);
            match Search::new(&problem).possible(&used, machines, budget) {
                Ok(false) => {}
                Ok(true) | Err(_) => {
                    dropped.pop();
                }
            }
        }
        // Limits also bound what steps and ratios ask for, so that one rule can free another that stood before it.
        if dropped.len() == before || !has_laws {
            break;
        }
    }
    let blamed: Vec<_> = rules
        .iter()
        .filter(|rule| !dropped.contains(rule))
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
