//! URLs in settings.

/// Parses an absolute URL without user, query or fragment. Repeats no more of it than its host: the
/// rest may hold a password.
pub(super) fn parse_url(text: &str) -> Result<http::Uri, String> {
    if text.contains('#') {
        return Err("a URL with '#' has no meaning here".to_owned());
    }
    let uri: http::Uri = text
        .parse()
        .map_err(|error| format!("not a URL: {error}"))?;
    let (Some(_), Some(authority)) = (uri.scheme(), uri.authority()) else {
        return Err("expected a whole URL, such as https://api.anthropic.com".to_owned());
    };
    if authority.as_str().contains('@') {
        return Err("a user name or password in a URL is not taken".to_owned());
    }
    let Some(host) = uri.host().filter(|host| !host.is_empty()) else {
        return Err("the URL has no host".to_owned());
    };
    // The parser takes any digits for a port and then has none.
    let port = authority.as_str().strip_prefix(host).unwrap_or_default();
    let number = port.strip_prefix(':').map(str::parse::<u16>);
    if !port.is_empty() && !matches!(number, Some(Ok(1..))) {
        return Err("the URL has a bad port".to_owned());
    }
    if uri.query().is_some() {
        return Err("the URL has a query, which would end up in every request".to_owned());
    }
    Ok(uri)
}

/// Whether a host may be this machine: a literal loopback address, or `localhost`. Who resolves a
/// name is another matter, so the proxy judges the address that it is connected to; every other name
/// is refused at once, because nothing says that it should be this machine.
pub(super) fn may_be_loopback(host: &str) -> bool {
    let literal = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost")
        || literal
            .parse::<std::net::IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}
