//! Spoils bytes by chance.

use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

/// The most that a spoiled input holds.
const SIZE_MAX: usize = 256 << 10;

/// Pieces that parsers trip over.
const WORDS: [&[u8]; 44] = [
    b"0",
    b"-1",
    b"1",
    b"255",
    b"256",
    b"65536",
    b"2147483648",
    b"4294967296",
    b"9223372036854775807",
    b"9223372036854775808",
    b"18446744073709551615",
    b"18446744073709551616",
    b"-9223372036854775808",
    b"1e309",
    b"NaN",
    b"",
    b" ",
    b"\0",
    b"%00",
    b"%",
    b"%2",
    b"%ff",
    b"+",
    b"\r\n",
    b"\n",
    b"\t",
    b"\"",
    b"'",
    b"<",
    b">",
    b"&amp;",
    b"&#0;",
    b"&#x110000;",
    b"<![CDATA[x]]>",
    b"<!DOCTYPE a [<!ENTITY b \"bb\">]>",
    b"<!--",
    b"..",
    b"/",
    b"//",
    b"*",
    b"?",
    b"${",
    "\u{202e}\u{1f600}".as_bytes(),
    b"\xff\xfe",
];

/// Some bytes of `input` are others; `pool` are inputs to borrow from.
pub fn mutate(chance: &mut StdRng, input: &[u8], pool: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = input.to_vec();
    for _ in 0..chance.random_range(1..=4) {
        step(chance, &mut bytes, pool);
    }
    bytes.truncate(SIZE_MAX);
    bytes
}

fn range(chance: &mut StdRng, length: usize) -> std::ops::Range<usize> {
    let start = chance.random_range(0..=length);
    let most = if chance.random_bool(0.8) { 16 } else { length };
    start..(start + chance.random_range(0..=most)).min(length)
}

fn step(chance: &mut StdRng, bytes: &mut Vec<u8>, pool: &[Vec<u8>]) {
    let part = range(chance, bytes.len());
    match chance.random_range(0..11) {
        0 => bytes[part].iter_mut().for_each(|byte| *byte = chance.random()),
        1 => {
            if let Some(byte) = bytes.get_mut(part.start) {
                *byte ^= 1 << chance.random_range(0..8);
            }
        }
        2 => drop(bytes.drain(part)),
        3 => bytes.truncate(part.start),
        4 | 5 => {
            let word = WORDS.choose(chance).copied().unwrap_or_default();
            bytes.splice(part, word.iter().copied());
        }
        6 => {
            let word = WORDS.choose(chance).copied().unwrap_or_default();
            bytes.splice(part.start..part.start, word.iter().copied());
        }
        7 => {
            let copy = bytes[part].to_vec();
            let at = chance.random_range(0..=bytes.len());
            bytes.splice(at..at, copy);
        }
        8 => number(chance, bytes),
        9 => {
            let times = *[2, 20, 2000].choose(chance).unwrap_or(&2);
            let copy = bytes[part.clone()].repeat(times.min(SIZE_MAX / part.len().max(1)));
            bytes.splice(part, copy);
        }
        _ => {
            let other = pool.choose(chance).map(Vec::as_slice).unwrap_or_default();
            let borrowed = other[range(chance, other.len())].to_vec();
            bytes.splice(part, borrowed);
        }
    }
}

/// Another number in place of one that is there.
fn number(chance: &mut StdRng, bytes: &mut Vec<u8>) {
    let starts: Vec<usize> = (0..bytes.len())
        .filter(|at| bytes[*at].is_ascii_digit() && (*at == 0 || !bytes[*at - 1].is_ascii_digit()))
        .collect();
    let Some(start) = starts.choose(chance).copied() else { return };
    let length = bytes[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let word = WORDS[..15].choose(chance).copied().unwrap_or_default();
    bytes.splice(start..start + length, word.iter().copied());
}
