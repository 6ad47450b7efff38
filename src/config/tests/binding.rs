//! A credential goes to the origin it was named for, and nowhere else.

use super::super::{CredentialChoice, CredentialReference, Environment};
use super::{Flag, Key, User};
use crate::proxy::credential::CredentialSource;
use crate::report::FailureKind;
use crate::secret::CredentialKind;

fn upstream(value: &str) -> Flag<'_> {
    Flag {
        key: Key::UpstreamBaseUrl,
        name: "--upstream",
        value,
    }
}

fn credential(value: &str) -> Flag<'_> {
    Flag {
        key: Key::UpstreamCredential,
        name: "--credential",
        value,
    }
}

fn chosen(user: &User, flags: &[Flag<'_>]) -> CredentialChoice {
    user.load_with(flags).unwrap().upstream.credential.value
}

fn api_key_in(name: &str) -> CredentialChoice {
    CredentialChoice::Named(CredentialReference::Env {
        kind: CredentialKind::ApiKey,
        name: name.to_owned(),
    })
}

fn dummy(origin: &str) -> CredentialChoice {
    CredentialChoice::Dummy {
        origin: origin.to_owned(),
    }
}

/// Threat 19: another upstream gets a worthless credential unless one is named for it, whichever
/// layer changes the upstream.
#[test]
fn t19_another_upstream_gets_a_dummy_unless_a_credential_is_named() {
    const ELSEWHERE: &str = "http://127.0.0.1:9999";
    let user = User::new();
    assert_eq!(chosen(&user, &[]), api_key_in("ANTHROPIC_API_KEY"));
    assert_eq!(chosen(&user, &[upstream(ELSEWHERE)]), dummy(ELSEWHERE));
    assert_eq!(
        chosen(&user, &[credential("env:OTHER_KEY"), upstream(ELSEWHERE)]),
        api_key_in("OTHER_KEY")
    );
    let user = user.variable("LABPROXY_UPSTREAM_ANTHROPIC_BASE_URL", ELSEWHERE);
    assert_eq!(chosen(&user, &[]), dummy(ELSEWHERE));
    let user = User::new().user_file(&format!("upstream.anthropic.base_url = \"{ELSEWHERE}\""));
    assert_eq!(chosen(&user, &[]), dummy(ELSEWHERE));
}

/// Threat 19: a credential of the user's file is bound to that file's upstream, not to the usual
/// one.
#[test]
fn t19_a_gateways_credential_stays_with_the_gateway() {
    let user = User::new().user_file(
        "[upstream.anthropic]\nbase_url = \"https://gw.example/anthropic\"\n\
         credential = { kind = \"oauth\", env = \"GATEWAY_TOKEN\" }\n",
    );
    let token = CredentialChoice::Named(CredentialReference::Env {
        kind: CredentialKind::Oauth,
        name: "GATEWAY_TOKEN".to_owned(),
    });
    assert_eq!(chosen(&user, &[]), token);
    assert_eq!(
        chosen(&user, &[upstream("https://api.anthropic.com")]),
        dummy("https://api.anthropic.com:443")
    );
}

/// Threat 19: an origin is scheme, host and port; a path, a default port or capitals do not make
/// another one, and everything else does.
#[test]
fn t19_an_origin_is_scheme_host_and_port() {
    let user = User::new();
    for same in [
        "https://api.anthropic.com:443",
        "https://API.Anthropic.com/v2",
        "HTTPS://api.anthropic.com/",
    ] {
        assert_eq!(
            chosen(&user, &[upstream(same)]),
            api_key_in("ANTHROPIC_API_KEY"),
            "{same}"
        );
    }
    for other in [
        "https://api.anthropic.com:8443",
        "https://api.anthropic.com.evil.example",
        "https://api.anthropic.com./",
        "http://127.0.0.1",
    ] {
        let choice = chosen(&user, &[upstream(other)]);
        assert!(matches!(choice, CredentialChoice::Dummy { .. }), "{other}");
    }
}

/// A missing key is an error with its remedies, and only where the key is needed.
#[test]
fn a_missing_key_names_its_remedies() {
    let environment = |variables: &[(&str, &str)]| {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).into());
        Environment::Fixed(variables.iter().map(owned).collect())
    };
    let choice = api_key_in("ANTHROPIC_API_KEY");
    let Err(failure) = choice.open(&environment(&[])) else {
        panic!("there was no key");
    };
    assert_eq!(
        failure.message(),
        "there is no credential: the variable ANTHROPIC_API_KEY is not set"
    );
    assert!(
        failure
            .render(crate::table::Style::Plain)
            .contains("--credential file:PATH")
    );
    let Err(failure) = choice.open(&environment(&[("ANTHROPIC_API_KEY", "sk-\ncanary")])) else {
        panic!("the key was bad");
    };
    assert!(
        !failure
            .render(crate::table::Style::Plain)
            .contains("canary")
    );
    let given = choice.open(&environment(&[("ANTHROPIC_API_KEY", "sk-canary")]));
    assert!(matches!(given, Ok(CredentialSource::Given(key)) if key.expose() == b"sk-canary"));
    let missing = CredentialChoice::Named(CredentialReference::File {
        kind: CredentialKind::ApiKey,
        path: "/nonexistent/key".into(),
    });
    let Err(failure) = missing.open(&environment(&[])) else {
        panic!("there was no file");
    };
    assert_eq!(failure.kind(), FailureKind::Usage);
    let nothing = dummy("http://127.0.0.1:1").open(&environment(&[]));
    assert!(matches!(nothing, Ok(CredentialSource::Dummy)));
}
