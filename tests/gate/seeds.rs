//! The fuzz target's seeds, and what it has found, replayed.

use std::fs;
use std::path::Path;

use crate::oracle::judge;

/// Every seed keeps every promise.
#[test]
fn seeds_of_the_gate_keep_its_promises() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/gate");
    let mut count = 0;
    for entry in fs::read_dir(folder).unwrap() {
        judge(&fs::read(entry.unwrap().path()).unwrap());
        count += 1;
    }
    assert!(count >= 20, "{count}");
}
