//! Any text as a price file: no panic, and what loads is written back to the same rows and digest.
#![no_main]

use labproxy::pricing::PriceBook;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    match PriceBook::from_text("fuzz.toml", text) {
        Ok(book) => {
            let again = PriceBook::from_text("again.toml", book.effective_toml()).unwrap();
            assert_eq!(book.rows(), again.rows());
            assert_eq!(book.digest(), again.digest());
        }
        Err(problems) => {
            let lines = text.bytes().filter(|byte| *byte == b'\n').count() + 1;
            assert!(!problems.is_empty());
            assert!(problems.iter().all(|problem| (1..=lines).contains(&problem.line)));
        }
    }
});
