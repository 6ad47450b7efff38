//! Bytes as text.

use std::fmt;

/// Bytes that are shown as two small hexadecimal digits each, one after the other; nothing of them is
/// kept anywhere else on the way.
pub struct Digits<'a>(pub &'a [u8]);

impl fmt::Display for Digits<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_two_digits() {
        assert_eq!(Digits(&[0, 10, 0xff]).to_string(), "000aff");
        assert_eq!(Digits(&[]).to_string(), "");
    }
}
