//! Any bytes, in any chunks, as events and as a document: no panic, and the chunks do not matter.
#![no_main]

use labproxy::usage::{BodyKind, Observed, UsageReader};
use libfuzzer_sys::fuzz_target;

fn read<'a>(kind: BodyKind, chunks: impl Iterator<Item = &'a [u8]>) -> Observed {
    let mut reader = UsageReader::new(kind);
    for chunk in chunks {
        reader.push(chunk);
    }
    reader.finish()
}

fuzz_target!(|input: &[u8]| {
    // The first byte chooses the size of the chunks.
    let Some((size, body)) = input.split_first() else {
        return;
    };
    for kind in [BodyKind::EventStream, BodyKind::Json] {
        let whole = read(kind, std::iter::once(body));
        let parts = read(kind, body.chunks(usize::from(*size).max(1)));
        assert_eq!(whole, parts);
    }
});
