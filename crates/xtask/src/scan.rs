//! A small reader of Rust source that finds functions and their lengths.
//!
//! It does not parse: it blanks out comments, strings and characters
//! ([`mask`]), then matches braces. That is enough for lengths, and fast.

/// A function with a body.
#[derive(Debug, PartialEq, Eq)]
pub struct Function {
    pub name: String,
    /// Of the `fn` keyword, counted from 1.
    pub line: usize,
    /// From the `fn` keyword to the closing brace.
    pub lines: usize,
}

/// The source with every comment, string and character literal replaced by
/// blanks. Line breaks stay, so line numbers stay right.
pub fn mask(source: &str) -> Vec<u8> {
    let bytes = source.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = match bytes[at] {
            b'/' if bytes.get(at + 1) == Some(&b'/') => line_end(bytes, at),
            b'/' if bytes.get(at + 1) == Some(&b'*') => comment_end(bytes, at),
            b'"' => string_end(bytes, at),
            b'r' if !follows_word(bytes, at) => raw_end(bytes, at).unwrap_or(at),
            b'b' if !follows_word(bytes, at) && bytes.get(at + 1) == Some(&b'r') => {
                raw_end(bytes, at + 1).unwrap_or(at)
            }
            b'\'' => char_end(bytes, at),
            _ => at,
        };
        out[at..end].iter_mut().filter(|b| **b != b'\n').for_each(|b| *b = b' ');
        at = end.max(at + 1);
    }
    out
}

/// Whether the byte at `at` goes on a word, so that it cannot begin a literal.
/// `b` itself may stand before a raw string.
fn follows_word(bytes: &[u8], at: usize) -> bool {
    at > 0 && is_word(bytes[at - 1])
}

const fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

fn line_end(bytes: &[u8], from: usize) -> usize {
    bytes[from..].iter().position(|b| *b == b'\n').map_or(bytes.len(), |n| from + n)
}

/// Block comments nest in Rust.
fn comment_end(bytes: &[u8], from: usize) -> usize {
    let (mut at, mut depth) = (from, 0usize);
    while at + 1 < bytes.len() {
        match &bytes[at..at + 2] {
            b"/*" => (at, depth) = (at + 2, depth + 1),
            b"*/" => (at, depth) = (at + 2, depth - 1),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    bytes.len()
}

fn string_end(bytes: &[u8], from: usize) -> usize {
    let mut at = from + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// The end of `r"…"` or `r#"…"#` that begins at `from`; none when it is another word.
fn raw_end(bytes: &[u8], from: usize) -> Option<usize> {
    let hashes = bytes[from + 1..].iter().take_while(|b| **b == b'#').count();
    let open = from + 1 + hashes;
    if bytes.get(open) != Some(&b'"') {
        return None;
    }
    let closing: Vec<u8> = std::iter::once(b'"').chain(std::iter::repeat_n(b'#', hashes)).collect();
    let rest = &bytes[open + 1..];
    let length = rest.windows(closing.len()).position(|w| w == closing)?;
    Some(open + 1 + length + closing.len())
}

/// The end of a character literal, or `from` when the quote begins a lifetime.
fn char_end(bytes: &[u8], from: usize) -> usize {
    let literal = match bytes.get(from + 1) {
        Some(b'\\') => true,
        Some(_) => {
            let width = utf8_width(bytes[from + 1]);
            bytes.get(from + 1 + width) == Some(&b'\'')
        }
        None => false,
    };
    if !literal {
        return from;
    }
    let mut at = from + 1;
    while at < bytes.len() && bytes[at] != b'\n' {
        match bytes[at] {
            b'\\' => at += 2,
            b'\'' => return at + 1,
            _ => at += 1,
        }
    }
    at.min(bytes.len())
}

const fn utf8_width(first: u8) -> usize {
    match first {
        0xF0.. => 4,
        0xE0.. => 3,
        0xC0.. => 2,
        _ => 1,
    }
}

/// Every function that has a body, in the order of the source.
pub fn functions(source: &str) -> Vec<Function> {
    let masked = mask(source);
    let mut found = Vec::new();
    let mut line = 1;
    let mut at = 0;
    while at < masked.len() {
        if masked[at] == b'\n' {
            line += 1;
        }
        if let Some((name, after)) = function_name(&masked, at)
            && let Some(end) = body_end(&masked, after)
        {
            let lines = masked[at..end].iter().filter(|b| **b == b'\n').count() + 1;
            found.push(Function { name, line, lines });
        }
        at += 1;
    }
    found
}

/// The name after a `fn` keyword at `at`, and where it ends. A function
/// pointer type has no name and is none.
fn function_name(masked: &[u8], at: usize) -> Option<(String, usize)> {
    let keyword = masked[at..].starts_with(b"fn ") && !follows_word(masked, at);
    if !keyword {
        return None;
    }
    let start = at + 2 + masked[at + 2..].iter().take_while(|b| b.is_ascii_whitespace()).count();
    let length = masked[start..].iter().take_while(|b| is_word(**b)).count();
    let name = String::from_utf8_lossy(&masked[start..start + length]).into_owned();
    (length > 0).then_some((name, start + length))
}

/// Where the body that follows a signature ends; none when there is only a signature.
fn body_end(masked: &[u8], from: usize) -> Option<usize> {
    let mut brackets = 0usize;
    let mut open = None;
    for (offset, byte) in masked[from..].iter().enumerate() {
        match byte {
            b'(' | b'[' => brackets += 1,
            b')' | b']' => brackets = brackets.saturating_sub(1),
            b';' if brackets == 0 => return None,
            b'{' if brackets == 0 => {
                open = Some(from + offset);
                break;
            }
            _ => {}
        }
    }
    let open = open?;
    let mut depth = 0usize;
    for (offset, byte) in masked[open..].iter().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(open + offset + 1);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(source: &str, expect: &[(&str, usize, usize)]) {
        let found: Vec<_> = functions(source).into_iter().map(|f| (f.name, f.line, f.lines)).collect();
        let expect: Vec<_> = expect.iter().map(|(n, l, s)| ((*n).to_owned(), *l, *s)).collect();
        assert_eq!(found, expect, "in {source:?}");
    }

    #[test]
    fn lengths_are_counted_from_the_keyword_to_the_brace() {
        check("fn a() {}", &[("a", 1, 1)]);
        check("\npub async fn b(\n  x: u8,\n) -> [u8; 4]\nwhere T: X\n{\n  1\n}\n", &[("b", 2, 7)]);
        check("impl X { fn a(&self) {\n fn inner() {}\n } }", &[("a", 1, 3), ("inner", 2, 1)]);
    }

    #[test]
    fn signatures_and_pointers_have_no_body() {
        check("trait T { fn a(&self); fn b() { 1 } }", &[("b", 1, 1)]);
        check("type F = fn (u8) -> u8; struct fnord {}", &[]);
    }

    #[test]
    fn braces_in_text_do_not_count() {
        check("fn a() {\n let x = \"}\\\"}\"; // }\n}", &[("a", 1, 3)]);
        check("fn a() {\n let x = r#\"}\"}\"#;\n let y = br\"}\";\n}", &[("a", 1, 4)]);
        check(
            "fn a<'a>(x: &'a str) {\n let c = '}'; let d = '\\''; let e = 'ü'; let f = b'{';\n}",
            &[("a", 1, 3)],
        );
        check("fn a() { /* } /* } */ } */\n}", &[("a", 1, 2)]);
        check("// fn no() {}\nconst S: &str = \"fn no() {}\";", &[]);
    }
}
