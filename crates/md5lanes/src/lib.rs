//! MD5, of up to four bodies at once.
//!
//! One MD5 cannot be hurried: each of its steps waits for the one before. Those of four bodies do not wait for each
//! other, so words of four bodies stand side by side and the processor takes a step of all four in the time of one.

use bytes::Bytes;

/// Bodies that are hashed side by side. More do not fit into the registers that every processor has.
pub const LANES: usize = 4;
const BLOCK: usize = 64;

/// The sines of RFC 1321.
#[rustfmt::skip]
const SINES: [u32; 64] = [
    0xd76a_a478, 0xe8c7_b756, 0x2420_70db, 0xc1bd_ceee, 0xf57c_0faf, 0x4787_c62a, 0xa830_4613, 0xfd46_9501,
    0x6980_98d8, 0x8b44_f7af, 0xffff_5bb1, 0x895c_d7be, 0x6b90_1122, 0xfd98_7193, 0xa679_438e, 0x49b4_0821,
    0xf61e_2562, 0xc040_b340, 0x265e_5a51, 0xe9b6_c7aa, 0xd62f_105d, 0x0244_1453, 0xd8a1_e681, 0xe7d3_fbc8,
    0x21e1_cde6, 0xc337_07d6, 0xf4d5_0d87, 0x455a_14ed, 0xa9e3_e905, 0xfcef_a3f8, 0x676f_02d9, 0x8d2a_4c8a,
    0xfffa_3942, 0x8771_f681, 0x6d9d_6122, 0xfde5_380c, 0xa4be_ea44, 0x4bde_cfa9, 0xf6bb_4b60, 0xbebf_bc70,
    0x289b_7ec6, 0xeaa1_27fa, 0xd4ef_3085, 0x0488_1d05, 0xd9d4_d039, 0xe6db_99e5, 0x1fa2_7cf8, 0xc4ac_5665,
    0xf429_2244, 0x432a_ff97, 0xab94_23a7, 0xfc93_a039, 0x655b_59c3, 0x8f0c_cc92, 0xffef_f47d, 0x8584_5dd1,
    0x6fa8_7e4f, 0xfe2c_e6e0, 0xa301_4314, 0x4e08_11a1, 0xf753_7e82, 0xbd3a_f235, 0x2ad7_d2bb, 0xeb86_d391,
];
const TURNS: [[u32; 4]; 4] = [[7, 12, 17, 22], [5, 9, 14, 20], [4, 11, 16, 23], [6, 10, 15, 21]];
const START: [u32; 4] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];

/// Takes bytes one after the other.
#[derive(Clone)]
pub struct Md5 {
    state: [u32; 4],
    /// Bytes that do not fill a block.
    rest: [u8; BLOCK],
    length: u64,
}

impl Default for Md5 {
    fn default() -> Self {
        Self { state: START, rest: [0; BLOCK], length: 0 }
    }
}

impl Md5 {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn update(&mut self, bytes: &[u8]) {
        let bytes = self.fill(bytes);
        let whole = bytes.len() / BLOCK * BLOCK;
        self.blocks(&bytes[..whole]);
        self.keep(&bytes[whole..]);
    }

    pub fn finish(mut self) -> [u8; 16] {
        let bits = self.length.wrapping_mul(8).to_le_bytes();
        let used = self.used();
        let zeros = if used < 56 { 55 - used } else { 119 - used };
        let mut end = [0; 2 * BLOCK];
        end[0] = 0x80;
        end[1 + zeros..][..8].copy_from_slice(&bits);
        self.update(&end[..zeros + 9]);
        let mut sum = [0; 16];
        for (bytes, word) in sum.chunks_exact_mut(4).zip(self.state) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        sum
    }

    fn used(&self) -> usize {
        (self.length % BLOCK as u64) as usize
    }

    /// Completes the block that was begun; returns what is left of the bytes. If that is not nothing, no block is begun.
    fn fill<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let used = self.used();
        if used == 0 {
            return bytes;
        }
        let (first, others) = bytes.split_at(bytes.len().min(BLOCK - used));
        self.rest[used..][..first.len()].copy_from_slice(first);
        self.length += first.len() as u64;
        if self.used() == 0 {
            let block = self.rest;
            self.length -= BLOCK as u64;
            self.blocks(&block);
        }
        others
    }

    /// Whole blocks, while none is begun.
    fn blocks(&mut self, bytes: &[u8]) {
        let mut words = self.state.map(|word| [word]);
        compress(&mut words, [bytes]);
        self.state = words.map(|[word]| word);
        self.length += bytes.len() as u64;
    }

    /// Less than a block, while none is begun.
    fn keep(&mut self, bytes: &[u8]) {
        self.rest[..bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len() as u64;
    }
}

/// A body and the bytes that come next.
pub struct Lane<'a> {
    md5: &'a mut Md5,
    /// Of the first piece, what is left.
    now: &'a [u8],
    later: std::slice::Iter<'a, Bytes>,
}

impl<'a> Lane<'a> {
    pub fn new(md5: &'a mut Md5, pieces: &'a [Bytes]) -> Self {
        Self { md5, now: &[], later: pieces.iter() }
    }

    /// Goes on until whole blocks lie ahead; false if nothing is left.
    fn advance(&mut self) -> bool {
        while self.now.len() < BLOCK || self.md5.used() != 0 {
            self.now = self.md5.fill(self.now);
            if self.now.len() >= BLOCK {
                break;
            }
            if !self.now.is_empty() {
                self.md5.keep(self.now);
            }
            let Some(next) = self.later.next() else {
                self.now = &[];
                return false;
            };
            self.now = next;
        }
        true
    }
}

/// Hashes all bytes of all lanes.
pub fn together(mut lanes: Vec<Lane<'_>>) {
    loop {
        lanes.retain_mut(Lane::advance);
        match lanes.as_mut_slice() {
            [] => return,
            [one] => side_by_side([one]),
            [one, two] => side_by_side([one, two]),
            [one, two, three] => side_by_side([one, two, three]),
            [one, two, three, four, ..] => side_by_side([one, two, three, four]),
        }
    }
}

/// As many blocks as all have.
fn side_by_side<const N: usize>(lanes: [&mut Lane<'_>; N]) {
    let common = lanes.iter().map(|lane| lane.now.len()).min().unwrap_or(0) / BLOCK * BLOCK;
    let mut words: [[u32; N]; 4] =
        std::array::from_fn(|word| std::array::from_fn(|lane| lanes[lane].md5.state[word]));
    compress(&mut words, std::array::from_fn(|lane| &lanes[lane].now[..common]));
    for (place, lane) in lanes.into_iter().enumerate() {
        lane.md5.state = words.map(|word| word[place]);
        lane.md5.length += common as u64;
        lane.now = &lane.now[common..];
    }
}

/// The same word of all lanes.
#[derive(Clone, Copy)]
struct Word<const N: usize>([u32; N]);

impl<const N: usize> Word<N> {
    #[inline(always)]
    fn with(self, other: Self, join: impl Fn(u32, u32) -> u32) -> Self {
        Self(std::array::from_fn(|lane| join(self.0[lane], other.0[lane])))
    }

    #[inline(always)]
    fn plus(self, other: Self) -> Self {
        self.with(other, u32::wrapping_add)
    }

    #[inline(always)]
    fn and(self, other: Self) -> Self {
        self.with(other, |one, two| one & two)
    }

    #[inline(always)]
    fn and_not(self, other: Self) -> Self {
        self.with(other, |one, two| one & !two)
    }

    #[inline(always)]
    fn or_not(self, other: Self) -> Self {
        self.with(other, |one, two| one | !two)
    }

    #[inline(always)]
    fn xor(self, other: Self) -> Self {
        self.with(other, |one, two| one ^ two)
    }

    #[inline(always)]
    fn first(self, b: Self, c: Self, d: Self) -> Self {
        self.plus(d.xor(b.and(c.xor(d))))
    }

    /// The two halves have no bit in common, so they may be added, and the one without `b` first.
    #[inline(always)]
    fn second(self, b: Self, c: Self, d: Self) -> Self {
        self.plus(c.and_not(d)).plus(b.and(d))
    }

    #[inline(always)]
    fn third(self, b: Self, c: Self, d: Self) -> Self {
        self.plus(b.xor(c.xor(d)))
    }

    #[inline(always)]
    fn fourth(self, b: Self, c: Self, d: Self) -> Self {
        self.plus(c.xor(b.or_not(d)))
    }

    #[inline(always)]
    fn turned(self, by: u32) -> Self {
        Self(self.0.map(|word| word.rotate_left(by)))
    }
}

/// One step of a round, with everything but the words known to the compiler.
macro_rules! round {
    ($round:literal, $mix:expr, $words:ident, $block:ident, $stride:literal, $first:literal) => {
        round!(@ $round, $mix, $words, $block, $stride, $first, 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15)
    };
    (@ $round:literal, $mix:expr, $words:ident, $block:ident, $stride:literal, $first:literal, $($step:literal)*) => {
        $({
            let [a, b, c, d] = $words;
            let sine = Word([SINES[$round * 16 + $step]; N]);
            // `b` is the word of the step before: what does not wait for it comes first.
            let early = a.plus(sine).plus(Word($block[($stride * $step + $first) % 16]));
            let sum = $mix(early, b, c, d);
            $words = [d, b.plus(sum.turned(TURNS[$round][$step % 4])), b, c];
        })*
    };
}

/// Takes the same number of whole blocks of every lane.
fn compress<const N: usize>(state: &mut [[u32; N]; 4], data: [&[u8]; N]) {
    let mut now = state.map(Word);
    let mut at = 0;
    while at < data[0].len() {
        let mut block = [[0; N]; 16];
        for (lane, bytes) in data.iter().enumerate() {
            for (word, bytes) in bytes[at..at + BLOCK].chunks_exact(4).enumerate() {
                block[word][lane] = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            }
        }
        let mut words = now;
        round!(0, Word::first, words, block, 1, 0);
        round!(1, Word::second, words, block, 5, 1);
        round!(2, Word::third, words, block, 3, 5);
        round!(3, Word::fourth, words, block, 7, 0);
        for (now, word) in now.iter_mut().zip(words) {
            *now = now.plus(word);
        }
        at += BLOCK;
    }
    *state = now.map(|word| word.0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use md5::Digest as _;
    use rand::Rng as _;

    fn reference(bytes: &[u8]) -> [u8; 16] {
        md5::Md5::digest(bytes).into()
    }

    #[test]
    fn it_is_md5_whatever_the_length() {
        for length in (0..300).chain([4_096, 4_097, 65_599]) {
            let bytes: Vec<u8> = (0..length).map(|at| (at * 31 % 251) as u8).collect();
            let mut md5 = Md5::new();
            md5.update(&bytes);
            assert_eq!(md5.finish(), reference(&bytes), "{length} bytes");
        }
    }

    #[test]
    fn lanes_do_not_meet_however_the_bytes_are_cut() {
        let mut rng = rand::rng();
        for _ in 0..300 {
            let lanes = rng.random_range(1..=6);
            let bodies: Vec<Vec<Bytes>> = (0..lanes)
                .map(|_| {
                    let pieces = rng.random_range(0..6);
                    (0..pieces)
                        .map(|_| {
                            let length = rng.random_range(0..400);
                            (0..length).map(|_| rng.random::<u8>()).collect::<Vec<u8>>().into()
                        })
                        .collect()
                })
                .collect();
            let mut sums: Vec<Md5> = (0..lanes).map(|_| Md5::new()).collect();
            // In two halves, so that blocks are left open between.
            for half in [0, 1] {
                let part = |body: &'_ Vec<Bytes>| {
                    if half == 0 { 0..body.len() / 2 } else { body.len() / 2..body.len() }
                };
                together(
                    sums.iter_mut()
                        .zip(&bodies)
                        .map(|(md5, body)| Lane::new(md5, &body[part(body)]))
                        .collect(),
                );
            }
            for (sum, body) in sums.into_iter().zip(&bodies) {
                assert_eq!(sum.finish(), reference(&body.concat()));
            }
        }
    }
}
