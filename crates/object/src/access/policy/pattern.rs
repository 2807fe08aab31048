//! Patterns of policies: `*`, `?` and variables such as `${aws:username}`.

use crate::access::context::Context;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Char(char),
    One,
    Any,
}

/// Whether `text` fits a pattern that has no variables.
pub fn fits(pattern: &str, text: &str, ignore_case: bool) -> bool {
    let steps: Vec<Step> = pattern.chars().map(|c| step(c, true)).collect();
    run(&steps, text, ignore_case)
}

/// Whether `text` fits a pattern whose variables stand for what the context knows.
/// A variable that nothing is known of fits nothing.
pub fn fits_within(pattern: &str, text: &str, ignore_case: bool, wild: bool, context: &Context) -> bool {
    steps(pattern, wild, context).is_some_and(|steps| run(&steps, text, ignore_case))
}

fn step(c: char, wild: bool) -> Step {
    match c {
        '*' if wild => Step::Any,
        '?' if wild => Step::One,
        c => Step::Char(c),
    }
}

/// Values of variables are taken literally, whatever they hold.
fn steps(pattern: &str, wild: bool, context: &Context) -> Option<Vec<Step>> {
    let mut steps = Vec::with_capacity(pattern.len());
    let mut rest = pattern;
    while let Some((before, after)) = rest.split_once("${") {
        let Some((variable, after)) = after.split_once('}') else { break };
        steps.extend(before.chars().map(|c| step(c, wild)));
        steps.extend(value(variable, context)?.chars().map(Step::Char));
        rest = after;
    }
    steps.extend(rest.chars().map(|c| step(c, wild)));
    Some(steps)
}

fn value<'a>(variable: &'a str, context: &'a Context) -> Option<&'a str> {
    let variable = variable.trim();
    if let "*" | "?" | "$" = variable {
        return Some(variable);
    }
    let (name, default) = match variable.split_once(',') {
        Some((name, default)) => (name.trim(), Some(default.trim().trim_matches('\''))),
        None => (variable, None),
    };
    match context.get(name) {
        Some([one]) => Some(one),
        // More than one value has no single text.
        Some(_) => None,
        None => default,
    }
}

/// Walks both sides once, going back to the last `*` only: time is bound by the product of the lengths.
fn run(steps: &[Step], text: &str, ignore_case: bool) -> bool {
    let text: Vec<char> = text.chars().collect();
    let same = |a: char, b: char| a == b || (ignore_case && a.to_lowercase().eq(b.to_lowercase()));
    let (mut at, mut place) = (0, 0);
    let mut back: Option<(usize, usize)> = None;
    while place < text.len() {
        match steps.get(at) {
            Some(Step::Any) => {
                back = Some((at, place));
                at += 1;
            }
            Some(Step::One) => {
                at += 1;
                place += 1;
            }
            Some(Step::Char(c)) if same(*c, text[place]) => {
                at += 1;
                place += 1;
            }
            _ => {
                let Some((star, from)) = back else { return false };
                back = Some((star, from + 1));
                at = star + 1;
                place = from + 1;
            }
        }
    }
    steps[at..].iter().all(|step| *step == Step::Any)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_fit() {
        let rows = [
            ("*", "", true),
            ("*", "anything/at all", true),
            ("s3:Get*", "s3:GetObject", true),
            ("s3:Get*", "s3:PutObject", false),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-b-b-", false),
            ("**", "x", true),
            ("", "", true),
            ("", "x", false),
            ("käse*", "käsebrot", true),
            ("arn:aws:s3:::b/*", "arn:aws:s3:::b", false),
            ("arn:aws:s3:::b/*", "arn:aws:s3:::b/", true),
        ];
        for (pattern, text, fit) in rows {
            assert_eq!(fits(pattern, text, false), fit, "{pattern} against {text}");
        }
        assert!(fits("S3:getobject", "s3:GetObject", true));
        assert!(!fits("S3:getobject", "s3:GetObject", false));
    }

    #[test]
    fn a_hostile_pattern_ends() {
        let pattern = "a*".repeat(2000);
        assert!(fits(&pattern, &format!("{}b", "a".repeat(5000)), false));
        assert!(!fits(&format!("{pattern}c"), &"a".repeat(5000), false));
    }

    #[test]
    fn variables_stand_for_values() {
        let context = Context::new().with("aws:username", "ann*");
        let fit = |pattern, text| fits_within(pattern, text, false, true, &context);
        assert!(fit("home/${aws:username}/*", "home/ann*/x"));
        assert!(!fit("home/${aws:username}/*", "home/anna/x"), "a value is not a pattern");
        assert!(!fit("home/${aws:unknown}/*", "home//x"));
        assert!(fit("home/${aws:unknown, 'guest'}/*", "home/guest/x"));
        assert!(fit("a${*}b", "a*b"));
        assert!(!fit("a${*}b", "axb"));
        assert!(fit("cost${$}", "cost$"));
        assert!(fit("open${brace", "open${brace"));
        assert!(!fits_within("a*", "abc", false, false, &context), "no wildcards where equality is asked");
    }
}
