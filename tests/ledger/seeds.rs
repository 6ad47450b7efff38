//! The fuzz target's seeds, and what it has found, replayed.

use std::path::Path;

use crate::bench::Numbers;
use crate::oracle::check;

/// Each seed of `fuzz/corpus/ledger` opens or is refused by name.
#[test]
fn seeds_open_or_are_refused() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/ledger");
    let mut count = 0;
    for seed in std::fs::read_dir(folder).unwrap() {
        check(&std::fs::read(seed.unwrap().path()).unwrap());
        count += 1;
    }
    assert!(count >= 5, "{count}");
}

/// So do ledgers with a few random changes, from a fixed seed.
#[test]
fn t26_random_changes_open_or_are_refused() {
    let mut numbers = Numbers(26);
    for _ in 0..150 {
        let changes = 1 + numbers.below(3);
        let input: Vec<u8> = (0..changes * 6)
            .map(|_| u8::try_from(numbers.below(256)).unwrap())
            .collect();
        check(&input);
    }
}
