//! Any bytes as a request body: no panic, and what the gate lets through is what it says it is.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../tests/gate/oracle.rs"]
mod oracle;

fuzz_target!(|data: &[u8]| oracle::judge(data));
