//! Passwords (RFC 7617): whether a request has that of a user whom its route admits.
//!
//! Verifying one is slow on purpose, so that it is never done on a worker: the plan is held back
//! meanwhile. Whoever has shown a password once is known for as long as it stays the same.

mod checks;
mod hash;
mod turns;

use std::net::IpAddr;
use std::sync::LazyLock;

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use myriad_model::{Name, Policy, Users};

use self::checks::{LoginAttempt, PasswordChecks, Verdict as Found};
use super::dry_run::{DryRunEnd, StageVerdict};
use super::{Flow, Hold, RequestState, Scene, sources};
use crate::codec::client::ClientAddress;
use crate::codec::head::Head;
use crate::failure::FailureKind;
use crate::http::answer::LocalReply;
use crate::policy::cors::Additions;
use crate::policy::{client, limit};

/// The longest name and password together, in base64.
const GIVEN_BYTES_MAX: usize = 1_024;

/// Names and passwords as clients encode them, with and without padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The passwords that this process has verified.
static CHECKS: LazyLock<PasswordChecks> = LazyLock::new(PasswordChecks::default);

/// A name and a password, as a request gives them.
struct Given {
    user: Box<str>,
    password: Box<[u8]>,
}

pub(super) fn apply(
    request: &mut RequestState<'_, '_>,
    scene: &Scene<'_>,
) -> Result<Flow, FailureKind> {
    let policy = request.taken()?.route.policy;
    let head = request.head.get();
    let Some(name) = asked(policy, head, scene) else {
        return Ok(Flow::Continue);
    };
    let refusal = || refusal(policy, &request.additions);
    let entry = scene.tables.trust(name);
    let trust = entry.and_then(|entry| Some((entry.sealed.version(), entry.sealed.trust()?)));
    let (Some(given), Some((version, trust))) = (Given::read(head), trust) else {
        return Ok(Flow::answer(refusal()));
    };
    let proof = CHECKS.proof(version, &given.user, &given.password);
    let proof = proof.ok_or(FailureKind::Internal)?;
    let namespace = CHECKS.namespace(name);
    if CHECKS.is_known(namespace, &proof) {
        return Ok(Flow::Continue);
    }
    let peer = scene.visit.client.ip();
    let source = source(client::address(head, peer, scene.trusted_hops));
    if let Some(wait) = CHECKS.wait(namespace, source) {
        let mut additions = Additions::new();
        additions.push(("retry-after", limit::retry_after(wait)));
        let answer = LocalReply::failed(FailureKind::RateLimited);
        return Ok(Flow::answer(answer.with(additions)));
    }
    let own = trust.users.hash_of(&given.user);
    let is_user = own.is_some();
    // A name that nobody has costs what that of a user does.
    let decoy = || trust.users.hash_at(CHECKS.number(version, &given.user));
    let Some(hash) = own.or_else(decoy) else {
        return Ok(Flow::answer(refusal()));
    };
    let attempt = LoginAttempt {
        namespace,
        proof,
        source,
        is_user,
        hash: hash.into(),
        password: given.password,
    };
    let refusal = refusal();
    let bytes = attempt.hash.len() + attempt.password.len() + refusal.memory();
    let until = async move {
        match CHECKS.verify(attempt).await {
            Found::Right => Ok(None),
            Found::Wrong => Err(Box::new(refusal)),
            Found::Full => Err(Box::new(LocalReply::failed(FailureKind::Overloaded))),
        }
    };
    request.hold = Some(Hold::new(bytes, Box::pin(until)));
    Ok(Flow::Continue)
}

/// The users whose passwords a route asks the client of a request for; none where its address
/// suffices.
pub(super) fn asked<'p>(
    policy: &'p Policy,
    head: &Head<'_>,
    scene: &Scene<'_>,
) -> Option<&'p Name> {
    let users = policy.users.as_ref()?;
    (!sources::suffices(policy, head, scene)).then_some(users)
}

/// Nothing is verified for a question, and nothing is told of what it gives but the name.
pub(super) fn explain(request: &mut RequestState<'_, '_>, scene: &Scene<'_>) -> StageVerdict {
    let Ok(taken) = request.taken() else {
        return StageVerdict::Silent;
    };
    let policy = taken.route.policy;
    let Some(name) = &policy.users else {
        return StageVerdict::Silent;
    };
    if sources::suffices(policy, request.head.get(), scene) {
        return StageVerdict::Passes(format!(
            "the address suffices, so that no password of the users of {name} is needed"
        ));
    }
    let trust = scene.tables.trust(name);
    if trust.and_then(|entry| entry.sealed.trust()).is_none() {
        let text = format!("a password is needed, and the users of {name} are not here");
        return DryRunEnd::refused(FailureKind::BadPassword, text);
    }
    let realm = &policy.realm;
    match Given::read(request.head.get()) {
        Some(given) => StageVerdict::Passes(format!(
            "the password of {:?} is verified by the users of {name}: 401 where it is another",
            given.user
        )),
        None => DryRunEnd::refused(
            FailureKind::BadPassword,
            format_args!("a password of the users of {name} is needed, for realm {realm:?}"),
        ),
    }
}

impl Given {
    /// The name and password in the one field that may have them; endpoints might go by any other.
    fn read(head: &Head<'_>) -> Option<Given> {
        let fields = head.fields.iter();
        let mut fields = fields.filter(|it| it.name.eq_ignore_ascii_case("authorization"));
        let (first, None) = (fields.next()?, fields.next()) else {
            return None;
        };
        let text = std::str::from_utf8(first.value).ok()?;
        let (scheme, encoded) = text.split_once(' ')?;
        let encoded = encoded.trim_matches(' ');
        if !scheme.eq_ignore_ascii_case("basic") || encoded.len() > GIVEN_BYTES_MAX {
            return None;
        }
        let decoded = BASE64.decode(encoded).ok()?;
        let colon = decoded.iter().position(|byte| *byte == b':')?;
        let (user, password) = decoded.split_at_checked(colon)?;
        let password = password.get(1..)?;
        (password.len() <= Users::PASSWORD_BYTES_MAX).then_some(())?;
        Some(Given {
            user: std::str::from_utf8(user).ok()?.into(),
            password: password.into(),
        })
    }
}

/// The answer that asks for a password, with what the response would have got.
fn refusal(policy: &Policy, additions: &Additions) -> LocalReply {
    let mut additions = additions.clone();
    additions.push(("www-authenticate", challenge(&policy.realm)));
    LocalReply::failed(FailureKind::BadPassword).with(additions)
}

/// The challenge, whose realm is a quoted string (RFC 9110, section 5.6.4).
fn challenge(realm: &str) -> Box<[u8]> {
    let mut text = String::from("Basic realm=\"");
    for letter in realm.chars() {
        if matches!(letter, '"' | '\\') {
            text.push('\\');
        }
        text.push(letter);
    }
    text.push('"');
    text.into_bytes().into()
}

/// The source of an attempt: an address, or of IPv6 a network of 64 bits; all that are not known
/// are one.
fn source(client: ClientAddress) -> u64 {
    match client.known() {
        None => 1 << 33,
        Some(IpAddr::V4(ip)) => u64::from(ip.to_bits()) | 1 << 32,
        Some(IpAddr::V6(ip)) => (ip.to_bits() >> 64) as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::{Given, challenge};
    use crate::codec::head;
    use crate::limits::Limits;

    fn given(fields: &str) -> Option<(String, Vec<u8>)> {
        let text = format!("GET / HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
        let head = head::parse(text.as_bytes(), &Limits::default()).unwrap();
        let given = Given::read(&head)?;
        Some((given.user.into(), given.password.into()))
    }

    #[test]
    fn a_name_and_a_password_are_read_from_one_field_only() {
        let ann = || Some(("ann".to_owned(), b"se:cret".to_vec()));
        assert_eq!(given("Authorization: Basic YW5uOnNlOmNyZXQ=\r\n"), ann());
        assert_eq!(given("authorization: bAsIc  YW5uOnNlOmNyZXQ\r\n"), ann());
        let none = Some(("ann".to_owned(), Vec::new()));
        assert_eq!(given("Authorization: Basic YW5uOg==\r\n"), none);
        let twice = "Authorization: Basic YW5uOg==\r\nAuthorization: Basic YW5uOg==\r\n";
        let long = format!("Authorization: Basic {}\r\n", "YW5uOg".repeat(300));
        for fields in [
            "",
            twice,
            "Authorization: Bearer YW5uOg==\r\n",
            "Authorization: Basic\r\n",
            "Authorization: Basic YW5u\r\n",
            "Authorization: Basic !\r\n",
            "Authorization: Basic /zo=\r\n",
            &long,
        ] {
            assert_eq!(given(fields), None, "{fields}");
        }
    }

    #[test]
    fn a_realm_cannot_end_its_quotes() {
        assert_eq!(&*challenge(""), b"Basic realm=\"\"");
        assert_eq!(
            &*challenge("a \"b\" \\"),
            b"Basic realm=\"a \\\"b\\\" \\\\\""
        );
    }
}
