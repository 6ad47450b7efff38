//! The seeds of the fuzz targets, replayed: what the targets assert holds for each of them.

use std::path::PathBuf;

use labproxy::pricing::PriceBook;
use labproxy::usage::{BodyKind, UsageReader};

fn seeds(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz/corpus")
        .join(target);
    let mut seeds: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.clone(), std::fs::read(path).unwrap()))
        .collect();
    seeds.sort();
    assert!(seeds.len() >= 5, "{target} has seeds");
    seeds
}

#[test]
fn reader_seeds_read_the_same_in_any_chunks() {
    for (path, seed) in seeds("sse_reader") {
        let Some((size, body)) = seed.split_first() else {
            continue;
        };
        for kind in [BodyKind::EventStream, BodyKind::Json] {
            let read = |size: usize| {
                let mut reader = UsageReader::new(kind);
                body.chunks(size).for_each(|chunk| reader.push(chunk));
                reader.finish()
            };
            let whole = read(body.len().max(1));
            assert_eq!(whole, read(usize::from(*size).max(1)), "{}", path.display());
            assert_eq!(whole, read(1), "{}", path.display());
        }
    }
}

#[test]
fn price_file_seeds_load_to_what_they_are_written_as() {
    let mut loaded = 0;
    for (path, seed) in seeds("price_file") {
        let Ok(text) = std::str::from_utf8(&seed) else {
            continue;
        };
        match PriceBook::from_text("seed.toml", text) {
            Ok(book) => {
                let again = PriceBook::from_text("again.toml", book.effective_toml()).unwrap();
                assert_eq!(book.rows(), again.rows(), "{}", path.display());
                loaded += 1;
            }
            Err(problems) => {
                let lines = text.bytes().filter(|byte| *byte == b'\n').count() + 1;
                assert!(
                    problems
                        .iter()
                        .all(|problem| (1..=lines).contains(&problem.line))
                );
            }
        }
    }
    assert!(loaded >= 1);
}
