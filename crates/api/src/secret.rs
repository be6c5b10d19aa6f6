//! `v1` Secret, of which only `kubernetes.io/tls`, generic ones and those for issuers have an
//! effect.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use serde::{Deserialize, Deserializer};

use crate::meta::{Pairs, RawMeta};
use crate::{Meta, ObjectKind};

/// The type of Secrets that hold a certificate and its key.
pub const TLS_TYPE: &str = "kubernetes.io/tls";

/// The type of Secrets that may hold anything.
pub const GENERIC_TYPE: &str = "Opaque";

/// The type of Secrets whose values issuers may use. Whoever may write an issuer need not be one
/// who may use any Secret beside it, so that its writer says so.
pub const ISSUER_TYPE: &str = "myriad.dev/issuer";

/// The keys of certificate and private key.
const PAIR: (&str, &str) = ("tls.crt", "tls.key");

/// The same in generic Secrets, as Istio's users write them.
const GENERIC_PAIR: (&str, &str) = ("cert", "key");

/// The key of users, a line each.
const USERS: &str = "auth";

/// How the hash of a password may begin.
const HASHES: [&str; 9] = [
    "$2a$", "$2b$", "$2y$", "$apr1$", "$1$", "$5$", "$6$", "{SHA}", "{PLAIN}",
];

/// The longest hash of a password, and so the longest value that may be one, and its base64.
const HASH_BYTES_MAX: usize = 512;

/// The longest name of a user.
const USER_BYTES_MAX: usize = 255;

/// The entries where authorities stand.
const AUTHORITIES: [&str; 2] = ["ca.crt", "cacert"];

/// The key of authorities in a ConfigMap.
pub(crate) const PUBLIC_AUTHORITIES: &str = "ca.crt";

/// The keys of revocation lists.
const REVOCATIONS: [&str; 2] = ["ca.crl", "crl"];

/// A Secret. Its bytes are decoded while reading, so that no PEM text is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Secret {
    /// Key and age.
    pub meta: Meta,
    /// `type` as written.
    pub secret_type: Box<str>,
    /// Certificate and key, or why there are none.
    pub tls: Result<TlsPair, SecretProblem>,
    /// The authorities or users that others are verified against, if there are any, or why they
    /// cannot be read.
    pub trust: Result<Option<Box<TrustDer>>, SecretProblem>,
    /// The values that issuers may use; none unless it is of type [`ISSUER_TYPE`].
    pub keys: Option<Box<IssuerKeys>>,
}

/// Values of a Secret that issuers use. They have no way to be printed or serialised.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct IssuerKeys {
    list: Box<[KeyValue]>,
}

/// The key of a value, and the value.
type KeyValue = (Box<str>, Box<[u8]>);

impl IssuerKeys {
    /// The most values that are kept, the first by their keys.
    pub const ENTRIES_MAX: usize = 16;

    /// The longest value that is kept.
    pub const BYTES_MAX: usize = 4 << 10;

    /// Takes over values, as far as they are kept.
    pub fn new(mut values: BTreeMap<Box<str>, Box<[u8]>>) -> Self {
        values.retain(|_, value| (1..=IssuerKeys::BYTES_MAX).contains(&value.len()));
        let kept = values.into_iter().take(IssuerKeys::ENTRIES_MAX);
        IssuerKeys {
            list: kept.collect(),
        }
    }

    /// The value of a key, or without one the only value that there is; for whoever uses it.
    pub fn expose(&self, key: Option<&str>) -> Option<&[u8]> {
        let found = match (key, &*self.list) {
            (Some(key), list) => list.iter().find(|(known, _)| **known == *key)?,
            (None, [only]) => only,
            (None, _) => return None,
        };
        Some(&found.1)
    }

    /// The bytes of all.
    pub fn bytes(&self) -> usize {
        let values = self.list.iter();
        values.map(|(key, value)| key.len() + value.len()).sum()
    }
}

impl std::fmt::Debug for IssuerKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "IssuerKeys({} hidden)", self.list.len())
    }
}

/// Certificates of authorities and revocation lists, in DER, or else users.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustDer {
    /// Empty where there are users.
    pub roots: Box<[Bytes]>,
    /// Revocation lists.
    pub crls: Box<[Bytes]>,
    /// The users; those of a Secret with authorities are not read.
    pub users: Users,
}

/// Users and the hashes of their passwords. Hashes have no way to be printed or serialised.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Users {
    /// Where they stand.
    pub form: UsersForm,
    /// How many lines of a file have a name and no hash of a kind that is known.
    pub unread: usize,
    list: Box<[(Box<str>, Box<str>)]>,
}

/// Where users stand in a Secret.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UsersForm {
    /// A line each in one value, as htpasswd writes them.
    #[default]
    File,
    /// A key each.
    Map,
}

impl Users {
    /// The most users that are kept of a Secret: one more than may be admitted, so that it is seen
    /// that there are too many.
    pub const KEPT_MAX: usize = 10_001;

    /// Takes over names and hashes.
    pub fn new(form: UsersForm, list: Vec<(Box<str>, Box<str>)>) -> Self {
        Users {
            form,
            unread: 0,
            list: list.into(),
        }
    }

    /// Names and hashes as written, for whoever checks or seals them.
    pub fn expose(&self) -> &[(Box<str>, Box<str>)] {
        &self.list
    }
}

impl std::fmt::Debug for Users {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Users({} hidden)", self.list.len())
    }
}

/// A certificate chain and its private key, both in DER. Whether they fit is not checked here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsPair {
    /// The leaf first, then its issuers; never empty.
    pub chain: Arc<[Bytes]>,
    /// The private key.
    pub key: KeyDer,
}

/// A private key in DER: PKCS#8, PKCS#1 or SEC1. It has no way to be printed or serialised.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyDer {
    /// Which of the three encodings.
    pub encoding: KeyEncoding,
    secret: Bytes,
}

/// How a private key is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyEncoding {
    /// RFC 5208.
    Pkcs8,
    /// RFC 8017, RSA only.
    Pkcs1,
    /// RFC 5915, elliptic curves only.
    Sec1,
}

/// Why a Secret holds no usable certificate and key. The texts name fields, never contents.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretProblem {
    /// The Secret has another type.
    #[error("has a type other than kubernetes.io/tls")]
    OtherType,
    /// A data key is absent.
    #[error("has no data[{0}]")]
    Missing(&'static str),
    /// The value is not base64.
    #[error("has a data[{0}] that is not base64")]
    NotBase64(&'static str),
    /// The value holds no PEM block of the right kind.
    #[error("has a data[{0}] without a PEM block of the right kind")]
    NotPem(&'static str),
}

impl Secret {
    /// Whether nothing of it is read, so that it says no more than one that is not there.
    pub fn is_blank(&self) -> bool {
        let has_pair = self.tls != Err(SecretProblem::OtherType);
        !has_pair && self.trust == Ok(None) && self.keys.is_none()
    }
}

impl KeyDer {
    /// Takes over a key.
    pub fn new(encoding: KeyEncoding, secret: Bytes) -> Self {
        KeyDer { encoding, secret }
    }

    /// The secret bytes, for whoever parses or seals the key.
    pub fn expose(&self) -> &Bytes {
        &self.secret
    }
}

impl std::fmt::Debug for KeyDer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KeyDer(hidden)")
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase", expecting = "a mapping")]
        struct Raw {
            metadata: RawMeta,
            #[serde(default, rename = "type")]
            secret_type: Option<Box<str>>,
            #[serde(default)]
            data: Option<Pairs>,
            #[serde(default)]
            string_data: Option<Pairs>,
        }
        let raw = Raw::deserialize(deserializer)?;
        let secret_type = raw.secret_type.unwrap_or_default();
        let values = Values(&raw.data, &raw.string_data);
        let is_generic = matches!(&*secret_type, "" | GENERIC_TYPE);
        let (tls, trust) = if &*secret_type == TLS_TYPE {
            (read_pair(values, PAIR), read_trust(values))
        } else if !is_generic {
            (Err(SecretProblem::OtherType), Ok(None))
        } else {
            let mut pairs = [PAIR, GENERIC_PAIR].into_iter();
            let tls = match pairs.find(|(certificate, _)| values.has(certificate)) {
                Some(pair) => read_pair(values, pair),
                None => Err(SecretProblem::OtherType),
            };
            (tls, read_trust(values))
        };
        let is_for_issuers = &*secret_type == ISSUER_TYPE;
        Ok(Secret {
            meta: raw.metadata.check(ObjectKind::Secret)?,
            keys: is_for_issuers.then(|| Box::new(read_keys(values))),
            secret_type,
            tls,
            trust,
        })
    }
}

/// `data` and `stringData`.
#[derive(Clone, Copy)]
struct Values<'a>(&'a Option<Pairs>, &'a Option<Pairs>);

impl Values<'_> {
    fn has(self, key: &str) -> bool {
        let has = |pairs: &Option<Pairs>| {
            let pairs = pairs.as_ref();
            pairs.is_some_and(|pairs| pairs.0.iter().any(|(known, _)| **known == *key))
        };
        has(self.0) || has(self.1)
    }
}

fn read_pair(
    values: Values<'_>,
    (certificate_key, key_key): (&'static str, &'static str),
) -> Result<TlsPair, SecretProblem> {
    let certificate = read_value(values, certificate_key)?;
    let key = read_value(values, key_key)?;
    let chain = CertificateDer::pem_slice_iter(&certificate)
        .map(|der| der.map(|der| Bytes::from(der.to_vec())))
        .collect::<Result<Arc<[Bytes]>, _>>()
        .map_err(|_| SecretProblem::NotPem(certificate_key))?;
    if chain.is_empty() {
        return Err(SecretProblem::NotPem(certificate_key));
    }
    let key = PrivateKeyDer::from_pem_slice(&key).map_err(|_| SecretProblem::NotPem(key_key))?;
    let encoding = match &key {
        PrivateKeyDer::Pkcs8(_) => KeyEncoding::Pkcs8,
        PrivateKeyDer::Pkcs1(_) => KeyEncoding::Pkcs1,
        PrivateKeyDer::Sec1(_) => KeyEncoding::Sec1,
        _ => return Err(SecretProblem::NotPem(key_key)),
    };
    let secret = Bytes::copy_from_slice(key.secret_der());
    Ok(TlsPair {
        chain,
        key: KeyDer { encoding, secret },
    })
}

/// Authorities and revocation lists, or else users. An empty value of authorities, as certificate
/// managers write where they know none, is none.
fn read_trust(values: Values<'_>) -> Result<Option<Box<TrustDer>>, SecretProblem> {
    let first = |keys: [&'static str; 2]| keys.into_iter().find(|key| values.has(key));
    let Some(key) = first(AUTHORITIES) else {
        return Ok(read_users(values));
    };
    let text = read_value(values, key)?;
    if text.trim_ascii().is_empty() {
        return Ok(read_users(values));
    }
    let roots = read_roots(&text, key)?;
    let mut crls: Box<[Bytes]> = Box::default();
    if let Some(key) = first(REVOCATIONS) {
        let text = read_value(values, key)?;
        crls = CertificateRevocationListDer::pem_slice_iter(&text)
            .map(|der| der.map(|der| Bytes::from(der.to_vec())))
            .collect::<Result<_, _>>()
            .map_err(|_| SecretProblem::NotPem(key))?;
        if crls.is_empty() && !text.trim_ascii().is_empty() {
            return Err(SecretProblem::NotPem(key));
        }
    }
    Ok(Some(Box::new(TrustDer {
        roots,
        crls,
        users: Users::default(),
    })))
}

/// The certificates of a value, of which there is one at least.
fn read_roots(text: &[u8], key: &'static str) -> Result<Box<[Bytes]>, SecretProblem> {
    let roots = CertificateDer::pem_slice_iter(text)
        .map(|der| der.map(|der| Bytes::from(der.to_vec())))
        .collect::<Result<Box<[Bytes]>, _>>()
        .map_err(|_| SecretProblem::NotPem(key))?;
    match roots.is_empty() {
        true => Err(SecretProblem::NotPem(key)),
        false => Ok(roots),
    }
}

/// The authorities of a ConfigMap, if it has the key of some.
pub(crate) fn read_public_trust(text: &str) -> Result<Option<TrustDer>, SecretProblem> {
    if text.trim_ascii().is_empty() {
        return Ok(None);
    }
    let roots = read_roots(text.as_bytes(), PUBLIC_AUTHORITIES)?;
    Ok(Some(TrustDer {
        roots,
        crls: Box::default(),
        users: Users::default(),
    }))
}

/// The users of a Secret: lines of one value, or else all keys whose values are hashes.
fn read_users(values: Values<'_>) -> Option<Box<TrustDer>> {
    let users = read_file(values).or_else(|| read_map(values))?;
    Some(Box::new(TrustDer {
        roots: Box::default(),
        crls: Box::default(),
        users,
    }))
}

/// The users in lines of `NAME:HASH`, with anything behind another colon. Of a name that stands
/// twice the first line counts, which is for whoever looks it up.
fn read_file(values: Values<'_>) -> Option<Users> {
    let text = read_value(values, USERS).ok()?;
    let text = String::from_utf8(text).ok()?;
    let lines = text.lines().map(|line| line.trim_end_matches('\r'));
    let lines = lines.filter(|line| !line.starts_with('#'));
    let mut named = lines.filter_map(|line| line.split_once(':')).peekable();
    named.peek()?;
    let (mut list, mut unread) = (Vec::new(), 0);
    for (name, rest) in named {
        // As nginx reads them: a password in plain text has no colon.
        let hash = rest.split(':').next().unwrap_or_default();
        match is_user(name) && is_hash(hash) {
            true if list.len() < Users::KEPT_MAX => list.push((name.into(), hash.into())),
            true => {}
            false => unread += 1,
        }
    }
    Some(Users {
        unread,
        ..Users::new(UsersForm::File, list)
    })
}

/// The keys whose values are hashes of passwords. Whatever else a Secret holds is left alone.
fn read_map(values: Values<'_>) -> Option<Users> {
    let Values(data, text) = values;
    let pairs = |pairs: &'_ Option<Pairs>| -> Vec<(Box<str>, Box<str>)> {
        let pairs = pairs.iter().flat_map(|pairs| &pairs.0);
        let short = pairs.filter(|(_, value)| value.len() <= HASH_BYTES_MAX);
        short.cloned().collect()
    };
    let mut list = pairs(text);
    let is_overridden = |key: &str| Values(&None, text).has(key);
    for (key, value) in pairs(data) {
        if is_overridden(&key) {
            continue;
        }
        let decoded = STANDARD.decode(value.trim_ascii());
        let decoded = decoded.ok().and_then(|it| String::from_utf8(it).ok());
        list.extend(decoded.map(|value| (key, value.into_boxed_str())));
    }
    let trimmed = list
        .into_iter()
        .map(|(key, value)| (key, Box::<str>::from(value.trim_end())));
    let users = trimmed.filter(|(key, value)| is_user(key) && is_hash(value));
    let list: Vec<(Box<str>, Box<str>)> = users.take(Users::KEPT_MAX).collect();
    (!list.is_empty()).then(|| Users::new(UsersForm::Map, list))
}

/// All values, as far as they are kept.
fn read_keys(Values(data, text): Values<'_>) -> IssuerKeys {
    let mut values: BTreeMap<Box<str>, Box<[u8]>> = BTreeMap::new();
    for (key, value) in data.iter().flat_map(|pairs| &pairs.0) {
        let packed = value.bytes().filter(|byte| !byte.is_ascii_whitespace());
        let packed: Vec<u8> = packed.collect();
        if let Ok(bytes) = STANDARD.decode(packed) {
            values.insert(key.clone(), bytes.into());
        }
    }
    for (key, value) in text.iter().flat_map(|pairs| &pairs.0) {
        values.insert(key.clone(), value.as_bytes().into());
    }
    IssuerKeys::new(values)
}

fn is_user(name: &str) -> bool {
    let is_clean = !name.bytes().any(|byte| byte < b' ' || byte == 0x7f);
    is_clean && (1..=USER_BYTES_MAX).contains(&name.len())
}

/// Whether a text begins like the hash of a password; whether it is one is not checked here.
fn is_hash(text: &str) -> bool {
    text.len() <= HASH_BYTES_MAX && HASHES.iter().any(|start| text.starts_with(start))
}

/// `stringData` wins over `data`, as the API server has it.
fn read_value(Values(data, text): Values<'_>, key: &'static str) -> Result<Vec<u8>, SecretProblem> {
    let find = |pairs: &'_ Option<Pairs>| -> Option<Box<str>> {
        let (_, value) = pairs
            .as_ref()?
            .0
            .iter()
            .find(|(known, _)| &**known == key)?;
        Some(value.clone())
    };
    if let Some(value) = find(text) {
        return Ok(value.into_string().into_bytes());
    }
    let encoded = find(data).ok_or(SecretProblem::Missing(key))?;
    let packed: Vec<u8> = encoded
        .bytes()
        .filter(|byte| !byte.is_ascii_whitespace())
        .collect();
    STANDARD
        .decode(packed)
        .map_err(|_| SecretProblem::NotBase64(key))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{IssuerKeys, Secret, Users, UsersForm};

    fn read(data: &str) -> Option<Users> {
        let yaml = format!("metadata:\n  name: x\ntype: Opaque\n{data}");
        let secret: Secret = serde_saphyr::from_str(&yaml).expect("a Secret");
        // Nothing of what is secret is ever printed.
        assert!(!format!("{secret:?}").contains("hush"));
        let trust = secret.trust.expect("it can be read");
        trust.map(|trust| trust.users)
    }

    fn named(users: &Users) -> Vec<(&str, &str)> {
        let list = users.expose().iter();
        list.map(|(name, hash)| (&**name, &**hash)).collect()
    }

    #[test]
    fn users_are_lines_of_a_file_or_keys_whose_values_are_hashes() {
        let lines = ["# all", "a:{PLAIN}hush:x", "b:hush", ":$1$", "c:$5$"];
        let file = format!("stringData:\n  auth: |\n    {}\n", lines.join("\n    "));
        let users = read(&file).expect("users");
        assert_eq!(users.form, UsersForm::File);
        assert_eq!(named(&users), [("a", "{PLAIN}hush"), ("c", "$5$")]);
        assert_eq!(users.unread, 2);

        // `{PLAIN}hush` twice, and what stringData says in place of one of them.
        let data = "data:\n  a: e1BMQUlOfWh1c2g=\n  b: e1BMQUlOfWh1c2g=\n  c: aHVzaA==\n  d: '!'\n";
        let map = format!("{data}stringData:\n  b: '{{SHA}}hush'\n");
        let users = read(&map).expect("users");
        assert_eq!(users.form, UsersForm::Map);
        assert_eq!(named(&users), [("b", "{SHA}hush"), ("a", "{PLAIN}hush")]);

        for nothing in [
            "",
            "stringData:\n  auth: hush\n",
            "stringData:\n  token: hush\n",
        ] {
            assert_eq!(read(nothing), None, "{nothing}");
        }
    }

    #[test]
    fn users_are_kept_up_to_a_number_however_many_a_secret_has() {
        let many = Users::KEPT_MAX + 100;
        let lines = "    a:$1$\n".repeat(many);
        let file = read(&format!("stringData:\n  auth: |\n{lines}")).expect("users");
        assert_eq!(file.form, UsersForm::File);
        assert_eq!(file.expose().len(), Users::KEPT_MAX);
        let keys: String = (0..many).map(|user| format!("  u{user}: $1$\n")).collect();
        let map = read(&format!("stringData:\n{keys}")).expect("users");
        assert_eq!(map.form, UsersForm::Map);
        assert_eq!(map.expose().len(), Users::KEPT_MAX);
    }

    #[test]
    fn the_values_of_a_secret_for_issuers_are_kept_and_hidden_and_those_of_others_are_not() {
        let secret = |kind: &str, values: &str| -> Secret {
            let yaml = format!("metadata:\n  name: x\ntype: {kind}\n{values}");
            serde_saphyr::from_str(&yaml).expect("a Secret")
        };
        let values = "data:\n  a: aHVzaA==\nstringData:\n  b: hush\n";
        let read = secret("myriad.dev/issuer", values);
        assert!(!read.is_blank() && !format!("{read:?}").contains("hush"));
        let keys = read.keys.expect("its values");
        assert_eq!(keys.expose(Some("a")), Some(&b"hush"[..]));
        assert_eq!(keys.expose(Some("b")), Some(&b"hush"[..]));
        // Which of two is meant has to be said.
        assert_eq!((keys.expose(None), keys.expose(Some("c"))), (None, None));
        let only = secret("myriad.dev/issuer", "stringData:\n  a: hush\n");
        let only = only.keys.expect("its values");
        assert_eq!(only.expose(None), Some(&b"hush"[..]));
        assert_eq!(secret("Opaque", values).keys, None);

        let long = "x".repeat(IssuerKeys::BYTES_MAX + 1).into_bytes();
        let value = |number: u32| -> (Box<str>, Box<[u8]>) {
            (format!("{number:02}").into(), vec![b'x'].into())
        };
        let mut many: BTreeMap<Box<str>, Box<[u8]>> = (0..20).map(value).collect();
        many.insert("0".into(), long.into());
        let keys = IssuerKeys::new(many);
        assert_eq!(keys.bytes(), IssuerKeys::ENTRIES_MAX * 3);
        assert_eq!(keys.expose(Some("0")), None);
    }
}
