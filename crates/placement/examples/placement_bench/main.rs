//! How fast placement decides and how well it packs.
//!
//! `cargo run --release -p placement --example placement_bench [-- speed|openb|all [OPENB_DIR]]`
//! The openb trace is read from the argument or from `OPENB_DIR`.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

mod openb;
mod speed;

/// A small seeded generator, so that a run can be repeated.
pub struct Seeded(pub u64);

impl Seeded {
    fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.draw() % end
    }

    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            items.swap(at, self.below(at as u64 + 1) as usize);
        }
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let what = arguments.next().unwrap_or_else(|| "all".to_owned());
    let trace = arguments.next().or_else(|| std::env::var("OPENB_DIR").ok());
    if what != "openb" {
        speed::run();
    }
    if what != "speed" {
        match trace {
            Some(path) => openb::run(std::path::Path::new(&path)),
            None => println!("openb: name the directory of the trace as an argument or in OPENB_DIR"),
        }
    }
}
