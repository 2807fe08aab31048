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
    let has_laws = rules.iter().any(|rule| matches!(rule, Rule::Step(_) | Rule::Ratio(_)));
    let mut sieve = Sieve { question, standing, machines, dropped: Vec::new() };
    loop {
        let left: Vec<Rule> = rules.iter().filter(|rule| !sieve.dropped.contains(rule)).cloned().collect();
        let before = sieve.dropped.len();
        sieve.drop_from(&left, budget)?;
        // Limits also bound what steps and ratios ask for, so that one rule can free another that stood before it.
        if sieve.dropped.len() == before || !has_laws {
            break;
        }
    }
    let dropped = sieve.dropped;
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

/// What is asked, and the rules that are not to blame.
struct Sieve<'q> {
    question: &'q Question<'q>,
    standing: &'q [Group],
    machines: u32,
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
        let used = super::live::used(&problem, self.standing);
        if Search::new(&problem).possible(&used, self.machines, budget) == Ok(false) {
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
