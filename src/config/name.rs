//! The rule for names that users give to hosts and tools.

/// Longest name: it stands in tables and messages.
pub(super) const NAME_MAX: usize = 64;

/// Whether a text can be such a name: letters, digits, `.`, `-` and `_`, the first one a letter or a digit,
/// so that it is never taken for an option.
pub(super) fn is_name(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|b| b.is_ascii_alphanumeric())
        && bytes.all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_'))
        && text.len() <= NAME_MAX
}
