//! Who may use the proxy: whoever shows the launch's placeholder.

use http::HeaderMap;
use http::header::AUTHORIZATION;

use crate::secret::{Placeholder, X_API_KEY};

/// More credential headers than any client sends; beyond them nothing is compared.
const MAX_CREDENTIAL_HEADERS: usize = 4;

/// Whether the request shows the placeholder: as `x-api-key` or as `Authorization: Bearer`, or as
/// both, and nowhere anything else.
pub(crate) fn is_authenticated(headers: &HeaderMap, placeholder: &Placeholder) -> bool {
    let keys = headers.get_all(X_API_KEY).iter();
    let tokens = headers.get_all(AUTHORIZATION).iter();
    let shown = keys
        .map(|value| Some(value.as_bytes()))
        .chain(tokens.map(|value| bearer(value.as_bytes())));
    let mut count = 0usize;
    let mut all = true;
    for text in shown {
        count = count.saturating_add(1);
        if count > MAX_CREDENTIAL_HEADERS {
            return false;
        }
        // Not short-circuited: every value is compared, each in constant time.
        all &= text.is_some_and(|text| placeholder.matches(text));
    }
    count > 0 && all
}

/// The token of an `Authorization: Bearer` value.
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(b"bearer ".len())?;
    scheme
        .eq_ignore_ascii_case(b"bearer ")
        .then(|| token.trim_ascii_start())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn the_placeholder_is_taken_in_either_header_or_in_both() {
        let placeholder = Placeholder::random().unwrap();
        let right = HeaderValue::from_str(placeholder.expose()).unwrap();
        let right_bearer =
            HeaderValue::from_str(&format!("Bearer {}", placeholder.expose())).unwrap();
        let wrong = HeaderValue::from_static("lp-0");
        let with = |pairs: &[(http::HeaderName, &HeaderValue)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.append(name, (*value).clone());
            }
            is_authenticated(&headers, &placeholder)
        };
        assert!(with(&[(X_API_KEY, &right)]));
        assert!(with(&[(AUTHORIZATION, &right_bearer)]));
        assert!(with(&[(X_API_KEY, &right), (AUTHORIZATION, &right_bearer)]));
        assert!(!with(&[]));
        assert!(!with(&[(X_API_KEY, &wrong)]));
        assert!(!with(&[(AUTHORIZATION, &right)]));
        assert!(!with(&[(X_API_KEY, &right), (AUTHORIZATION, &wrong)]));
        assert!(!with(&[(X_API_KEY, &right), (X_API_KEY, &wrong)]));
    }
}
