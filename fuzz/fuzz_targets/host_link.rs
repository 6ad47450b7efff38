//! Any bytes on a link to the host: frames in any chunks give the same orders, once each.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../tests/remote/oracle.rs"]
mod oracle;

fuzz_target!(|input: &[u8]| oracle::check(input));
