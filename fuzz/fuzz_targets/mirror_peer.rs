//! Any bytes in place of the far end of a mirror: the controller's end keeps within its limits.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../tests/mirror_hostile/oracle.rs"]
#[allow(dead_code, reason = "the other end is another target's")]
mod oracle;

fuzz_target!(|input: &[u8]| {
    oracle::check_peer(input);
});
