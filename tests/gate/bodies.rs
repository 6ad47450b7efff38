//! Threat 21 and cases S07, S15: encoded bodies.

use std::io::Write;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};
use http::{HeaderMap, HeaderValue};
use labproxy::proxy::body::{BODY_LIMIT, BodyError, Coding, decode};
use proptest::prelude::*;

fn gzip(data: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

fn deflate(data: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

fn brotli(data: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut encoder = brotli::CompressorWriter::new(&mut out, 4096, 4, 20);
    encoder.write_all(data).unwrap();
    drop(encoder);
    out
}

fn zstd(data: &[u8]) -> Vec<u8> {
    zstd::encode_all(data, 1).unwrap()
}

fn encoded(data: &[u8]) -> [(Coding, Vec<u8>); 4] {
    [
        (Coding::Gzip, gzip(data)),
        (Coding::Deflate, deflate(data)),
        (Coding::Brotli, brotli(data)),
        (Coding::Zstd, zstd(data)),
    ]
}

fn coding(values: &[&str]) -> Result<Coding, BodyError> {
    let mut headers = HeaderMap::new();
    for value in values {
        headers.append("content-encoding", HeaderValue::from_str(value).unwrap());
    }
    Coding::of(&headers)
}

/// S07: the four encodings are known, others are 415, and so are several at once.
#[test]
fn s07_encodings_are_known_or_refused() {
    assert_eq!(coding(&[]), Ok(Coding::Identity));
    assert_eq!(coding(&["identity"]), Ok(Coding::Identity));
    assert_eq!(coding(&["GZIP"]), Ok(Coding::Gzip));
    assert_eq!(coding(&["x-gzip"]), Ok(Coding::Gzip));
    assert_eq!(coding(&["deflate"]), Ok(Coding::Deflate));
    assert_eq!(coding(&["br"]), Ok(Coding::Brotli));
    assert_eq!(coding(&["zstd"]), Ok(Coding::Zstd));
    for unknown in ["compress", "lz4", "", "gzip;q=1"] {
        assert_eq!(
            coding(&[unknown]),
            Err(BodyError::UnknownCoding(unknown.to_owned()))
        );
    }
    for several in [
        &["gzip, br"][..],
        &["gzip", "gzip"],
        &["identity", "gzip"],
        &["gzip,"],
    ] {
        assert_eq!(coding(several), Err(BodyError::SeveralCodings));
    }
}

/// Anything after the end of the one stream is refused: a second member, a second frame, a byte.
#[test]
fn t21_second_members_and_trailing_data_are_refused() {
    let data = b"{\"model\":\"claude-haiku-5-5\"}";
    for (coding, once) in encoded(data) {
        assert_eq!(
            decode(coding, once.clone().into(), 1_000).unwrap(),
            data.as_slice()
        );
        for more in [once.as_slice(), b"\0", b"x"] {
            let both = [once.as_slice(), more].concat();
            let error = decode(coding, both.into(), 1_000).unwrap_err();
            assert!(
                matches!(error, BodyError::Trailing(_)),
                "{coding:?}: {error}"
            );
        }
    }
    // A skippable frame in front is a second frame too.
    let skippable = [b"\x50\x2a\x4d\x18\x01\0\0\0x".as_slice(), &zstd(data)].concat();
    assert!(decode(Coding::Zstd, skippable.into(), 1_000).is_err());
}

/// A body that ends too early or is something else is refused; an empty one is no stream.
#[test]
fn t21_cut_and_foreign_bodies_are_refused() {
    let data = b"a body that is long enough to be cut at many places, and then once more";
    for (coding, whole) in encoded(data) {
        for length in 0..whole.len() {
            let error = decode(coding, whole[..length].to_vec().into(), 1_000).unwrap_err();
            assert!(
                matches!(error, BodyError::Malformed(_)),
                "{coding:?} cut at {length} of {}: {error}",
                whole.len()
            );
        }
        let foreign = Bytes::from_static(b"{\"model\":\"m\"}");
        assert!(decode(coding, foreign, 1_000).is_err(), "{coding:?}");
    }
    let mut wrong_sum = gzip(data);
    let at = wrong_sum.len() - 6;
    wrong_sum[at] ^= 1;
    assert!(decode(Coding::Gzip, wrong_sum.into(), 1_000).is_err());
}

/// S15: the limit holds after decoding as before it, to the byte.
#[test]
fn s15_the_limit_holds_after_decoding() {
    let fits = vec![b' '; BODY_LIMIT];
    let over = vec![b' '; BODY_LIMIT + 1];
    assert_eq!(
        decode(Coding::Identity, over.clone().into(), BODY_LIMIT),
        Err(BodyError::TooLarge { limit: BODY_LIMIT })
    );
    assert!(decode(Coding::Identity, fits.clone().into(), BODY_LIMIT).is_ok());
    for ((coding, fits), (_, over)) in encoded(&fits).into_iter().zip(encoded(&over)) {
        assert!(over.len() < 200_000, "{coding:?}");
        assert_eq!(
            decode(coding, fits.into(), BODY_LIMIT).unwrap().len(),
            BODY_LIMIT
        );
        assert_eq!(
            decode(coding, over.into(), BODY_LIMIT),
            Err(BodyError::TooLarge { limit: BODY_LIMIT })
        );
    }
}

proptest! {
    /// What comes out is what went in; bytes that are no stream never panic.
    #[test]
    fn decoding_gives_back_the_body(data in prop::collection::vec(any::<u8>(), 0..2_000)) {
        for (coding, body) in encoded(&data) {
            let decoded = decode(coding, body.into(), 2_000).unwrap();
            prop_assert_eq!(decoded.as_ref(), data.as_slice());
            let _judged = decode(coding, data.clone().into(), 2_000);
        }
    }
}
