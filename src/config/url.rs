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
    if uri.host().is_none_or(str::is_empty) {
        return Err("the URL has no host".to_owned());
    }
    if authority.as_str().ends_with(':') || (authority.port().is_some() && uri.port_u16().is_none())
    {
        return Err("the URL has a bad port".to_owned());
    }
    if uri.query().is_some() {
        return Err("the URL has a query, which would end up in every request".to_owned());
    }
    Ok(uri)
}

/// Whether a host is the literal address of this machine. Names are not: who resolves them is
/// another matter.
pub(super) fn is_loopback(host: &str) -> bool {
    let literal = host.trim_start_matches('[').trim_end_matches(']');
    literal
        .parse::<std::net::IpAddr>()
        .is_ok_and(|address| address.is_loopback())
}
