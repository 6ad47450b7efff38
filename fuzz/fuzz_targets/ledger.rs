//! A ledger whose files were changed in any way: it opens or is refused with a named error, and
//! verifies only when every entry is what it was.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../tests/ledger/oracle.rs"]
mod oracle;

fuzz_target!(|input: &[u8]| oracle::check(input));
