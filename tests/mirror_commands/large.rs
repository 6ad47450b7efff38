//! Large files that change: only what is new travels, both ways.

use crate::rig::Rig;

/// Bytes without a period, in more than one segment of a delta.
fn large() -> Vec<u8> {
    let words = 0_u32..2_500_000;
    words
        .flat_map(|at| at.wrapping_mul(0x9e37_79b9).to_be_bytes())
        .collect()
}

/// Changes one after the other: each made of the one before, with how many bytes it may take.
fn changes() -> Vec<(&'static str, Vec<u8>, u64)> {
    let first = large();
    let mut edited = first.clone();
    for at in [3, 2_000_000, 9_999_999] {
        edited[at] ^= 1;
    }
    let longer = [edited.as_slice(), &[7; 5_000]].concat();
    let mut inserted = longer.clone();
    inserted.splice(5_000_000..5_000_000, *b"in the middle");
    let before = [b"at the beginning".as_slice(), &inserted].concat();
    let shorter = before[..6_000_000].to_vec();
    let without = shorter[200_000..].to_vec();
    let other: Vec<u8> = without
        .iter()
        .map(|byte| byte.wrapping_mul(7) ^ 0x55)
        .collect();
    let all = other.len() as u64;
    vec![
        ("a first one", first, 10_000_000),
        ("edits", edited, 250_000),
        ("an end", longer, 100_000),
        ("something in the middle", inserted, 250_000),
        ("something before", before, 250_000),
        ("cut", shorter, 100_000),
        ("without its beginning", without, 250_000),
        ("all of it", other, all),
        ("small", b"small".to_vec(), 5),
    ]
}

#[test]
fn a_push_of_a_changed_large_file_sends_what_is_new() {
    let rig = Rig::new();
    rig.write("local/a", "a");
    for (what, bytes, most) in changes() {
        rig.write("local/d/large", &bytes);
        let sent = rig.push("--json").json()["sent_bytes"].as_u64().unwrap();
        assert!(sent <= most + 1, "{what}: {sent} bytes were sent");
        assert!(rig.read("far/d/large") == bytes, "{what}");
    }
}

#[test]
fn a_pull_of_a_changed_large_file_receives_what_is_new() {
    let rig = Rig::new();
    rig.write("far/a", "a");
    for (what, bytes, most) in changes() {
        rig.write("far/d/large", &bytes);
        let pulled = rig.pull("--json").json();
        let came = pulled["received_bytes"].as_u64().unwrap();
        assert!(came <= most + 1, "{what}: {came} bytes were received");
        assert!(rig.read("local/d/large") == bytes, "{what}");
    }
}
