//! Any orders to the host's end of a mirror, once its root is open: nothing beside the root changes.
#![no_main]

use std::cell::LazyCell;

use libfuzzer_sys::fuzz_target;

#[path = "../../tests/mirror_hostile/oracle.rs"]
#[allow(dead_code, reason = "the other end is another target's")]
mod oracle;

thread_local! {
    static PLACE: LazyCell<oracle::HostPlace> = LazyCell::new(oracle::HostPlace::new);
}

fuzz_target!(|input: &[u8]| PLACE.with(|place| {
    place.check(input);
}));
