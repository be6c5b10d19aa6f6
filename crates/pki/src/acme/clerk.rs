//! The part of each step that an authority sees.
//!
//! Whatever an order has come to since it was last looked at, a step first asks for it, so that one
//! which is carried out twice does what it would have done once.

mod admission;
mod trouble;
mod words;

use std::fmt;

use instant_acme::{
    Account as AcmeAccount, AccountCredentials, AuthorizationStatus, CertificateIdentifier,
    ChallengeStatus, ChallengeType, Error, ExternalAccountKey, Identifier, Key, NewAccount,
    NewOrder, OrderStatus,
};
pub use instant_acme::{BodyWrapper, BytesResponse, Error as HttpError, HttpClient};
use myriad_model::ChallengeAnswer;
use rcgen::{
    CertificateParams, DistinguishedName, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_RSA_SHA256,
    RsaKeySize,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use self::admission::{admit, own_name};
pub use self::trouble::Busy;
use self::trouble::{StepError, local, retried, trouble};
use self::words::{cut, offered, reason};
use super::{
    AcmeIssuer, Challenge, ChallengeKind, Directory, KeyKind, Millis, Order, OrderKey,
    RenewalWindow, SECOND, StepOutcome, StepTrouble,
};

/// The longest wait between two looks at an order, while nobody says otherwise.
const PENDING_MAX: Millis = 15 * SECOND;

/// An account at an authority. Cheap to clone.
#[derive(Clone)]
pub struct Account(AcmeAccount);

/// A new account, and the text by which it is found again.
pub struct OpenedAccount {
    /// The account.
    pub account: Account,
    /// The credentials, which have its key in them.
    text: String,
}

impl OpenedAccount {
    /// The text of the account, for whoever keeps it.
    pub fn expose_text(&self) -> &str {
        &self.text
    }
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Account").field(&self.0.id()).finish()
    }
}

/// A new private key for an account, in PKCS#8 DER, to be kept before there is one.
///
/// # Errors
/// The cryptographic library refuses.
pub fn account_key() -> Result<OrderKey, StepTrouble> {
    let (_, key) = Key::generate_pkcs8().map_err(|error| local(&error))?;
    Ok(OrderKey::new(key.secret_pkcs8_der().to_vec()))
}

/// A new private key for a certificate, in PKCS#8 DER. One of RSA takes a good part of a second.
///
/// # Errors
/// The cryptographic library refuses; its words.
pub fn order_key(kind: KeyKind) -> Result<OrderKey, String> {
    let key = new_key(kind).map_err(|error| error.to_string())?;
    Ok(OrderKey::new(key.serialize_der()))
}

/// Opens the account of a text that was kept.
///
/// # Errors
/// The authority cannot be asked, or the text is none.
pub async fn reopen(http: Box<dyn HttpClient>, text: &str) -> Result<Account, StepTrouble> {
    let credentials: AccountCredentials =
        serde_json::from_str(text).map_err(|error| StepTrouble::Local(error.to_string()))?;
    let opened = AcmeAccount::builder_with_http(http).from_credentials(credentials);
    Ok(Account(opened.await.map_err(trouble)?))
}

/// Makes an account with a key, or finds the one that has it. An account that is bound to another
/// gets a key of its own.
///
/// # Errors
/// The authority cannot be asked, or refuses.
pub async fn open(
    http: Box<dyn HttpClient>,
    directory: &Directory,
    key: &OrderKey,
) -> Result<OpenedAccount, StepTrouble> {
    let builder = AcmeAccount::builder_with_http(http);
    let contact = directory.email.as_ref().map(|it| format!("mailto:{it}"));
    let contact: Vec<&str> = contact.as_deref().into_iter().collect();
    let url = directory.url.to_string();
    let opened = match &directory.binding {
        Some(binding) => {
            let key = ExternalAccountKey::new(binding.id.to_string(), binding.key.expose());
            let account = NewAccount {
                contact: &contact,
                terms_of_service_agreed: true,
                only_return_existing: false,
            };
            builder.create(&account, url, Some(&key)).await
        }
        None => {
            let der = PrivatePkcs8KeyDer::from(key.expose().to_vec());
            let key = Key::from_pkcs8_der(PrivatePkcs8KeyDer::from(key.expose()));
            let key = key.map_err(|error| local(&error))?;
            let made = builder.create_from_key((key, PrivateKeyDer::Pkcs8(der)), url);
            match made.await {
                Ok((account, credentials)) if !contact.is_empty() => account
                    .update_contacts(&contact)
                    .await
                    .map(|()| (account, credentials)),
                made => made,
            }
        }
    };
    let (account, credentials) = opened.map_err(trouble)?;
    let text = serde_json::to_string(&credentials);
    Ok(OpenedAccount {
        account: Account(account),
        text: text.map_err(|error| StepTrouble::Local(error.to_string()))?,
    })
}

impl Account {
    /// The URL of the account.
    pub fn id(&self) -> &str {
        self.0.id()
    }

    /// Asks for an order.
    ///
    /// # Errors
    /// See [`StepTrouble`].
    pub async fn place(
        &self,
        order: &Order,
        issuer: &AcmeIssuer,
        profile: Option<&str>,
    ) -> Result<StepOutcome, StepTrouble> {
        retried(|| self.try_place(order, issuer, profile)).await
    }

    /// Asks for an order, and once more for a new one where the authority may have failed by the
    /// certificate that it says to replace: one that is in trouble fails by both.
    ///
    /// # Errors
    /// See [`StepTrouble`].
    pub async fn place_or_anew(
        &self,
        order: &Order,
        issuer: &AcmeIssuer,
        profile: Option<&str>,
    ) -> Result<StepOutcome, StepTrouble> {
        let placed = self.place(order, issuer, profile).await;
        if !matches!(placed, Err(StepTrouble::Unreplaced(_))) {
            return placed;
        }
        let new = Order {
            replaces: None,
            ..order.clone()
        };
        match self.place(&new, issuer, profile).await? {
            StepOutcome::Placed(url, challenges) => Ok(StepOutcome::PlacedNew(url, challenges)),
            other => Ok(other),
        }
    }

    async fn try_place(
        &self,
        order: &Order,
        issuer: &AcmeIssuer,
        profile: Option<&str>,
    ) -> Result<StepOutcome, StepError> {
        let names: Vec<Identifier> = order.names.iter().map(|name| identifier(name)).collect();
        let mut wanted = NewOrder::new(&names);
        if let Some(replaces) = order.replaces.as_deref().and_then(certificate) {
            wanted = wanted.replaces(replaces);
        }
        if let Some(profile) = profile {
            wanted = wanted.profile(profile);
        }
        let placed = self.0.new_order(&wanted).await;
        let mut placed = placed.map_err(|error| match &order.replaces {
            Some(_) => StepError::of_replacing(error),
            None => error.into(),
        })?;
        if placed.state().status == OrderStatus::Invalid {
            return Err(refused(&mut placed, &order.names).await);
        }
        admit(&mut placed, &order.names)?;
        let mut challenges = Vec::new();
        let mut authorizations = placed.authorizations();
        while let Some(authorization) = authorizations.next().await {
            let mut authorization = authorization?;
            let name = own_name(&order.names, &authorization.identifier())?;
            match authorization.status {
                AuthorizationStatus::Valid => continue,
                AuthorizationStatus::Pending => {}
                _ => {
                    return Err(StepError::Refused(format!(
                        "{name} is not to be had any more"
                    )));
                }
            }
            let (offered, kind) = (offered(&authorization), issuer.challenge_of(name));
            let Some(challenge) = authorization.challenge(type_of(kind)) else {
                return Err(StepError::Refused(cut(format!(
                    "it does not offer {} for {name}, but {offered}",
                    kind.as_str()
                ))));
            };
            // Records that are there for good need none.
            let is_bare = kind == ChallengeKind::DnsPersist && challenge.token.is_empty();
            if !is_bare && !ChallengeAnswer::is_token(&challenge.token) {
                return Err(StepError::Refused(format!(
                    "its challenge for {name} has no token of at most {} bytes in base64url",
                    ChallengeAnswer::TOKEN_BYTES_MAX
                )));
            }
            let key = challenge.key_authorization();
            challenges.push(Challenge {
                name: name.into(),
                kind: kind.as_str().into(),
                token: challenge.token.as_str().into(),
                answer: match kind {
                    ChallengeKind::Dns => key.dns_value().into(),
                    _ => key.as_str().into(),
                },
            });
        }
        Ok(StepOutcome::Placed(placed.url().into(), challenges))
    }

    /// Tells the authority that the answers for these names are in service.
    ///
    /// # Errors
    /// See [`StepTrouble`].
    pub async fn accept(
        &self,
        url: &str,
        names: &[Box<str>],
        issuer: &AcmeIssuer,
    ) -> Result<StepOutcome, StepTrouble> {
        retried(|| self.try_accept(url, names, issuer)).await
    }

    async fn try_accept(
        &self,
        url: &str,
        names: &[Box<str>],
        issuer: &AcmeIssuer,
    ) -> Result<StepOutcome, StepError> {
        let mut order = self.0.order(url.to_owned()).await?;
        match order.state().status {
            OrderStatus::Invalid => return Err(refused(&mut order, names).await),
            OrderStatus::Pending => {}
            _ => return Ok(StepOutcome::Accepted),
        }
        admit(&mut order, names)?;
        let mut authorizations = order.authorizations();
        while let Some(authorization) = authorizations.next().await {
            let mut authorization = authorization?;
            if authorization.status != AuthorizationStatus::Pending {
                continue;
            }
            let kind = issuer.challenge_of(own_name(names, &authorization.identifier())?);
            let Some(mut challenge) = authorization.challenge(type_of(kind)) else {
                continue;
            };
            if challenge.status == ChallengeStatus::Pending {
                challenge.set_ready().await?;
            }
        }
        Ok(StepOutcome::Accepted)
    }

    /// Looks at what the authority says to the answers for these names, so long after the order was
    /// placed. Once it is content, the certificate gets a key, which the caller makes: see
    /// [`order_key`].
    ///
    /// # Errors
    /// See [`StepTrouble`].
    pub async fn look(
        &self,
        (url, age): (&str, Millis),
        names: &[Box<str>],
        make: impl AsyncFn() -> Result<OrderKey, String>,
    ) -> Result<StepOutcome, StepTrouble> {
        retried(|| self.try_look((url, age), names, &make)).await
    }

    async fn try_look(
        &self,
        (url, age): (&str, Millis),
        names: &[Box<str>],
        make: &impl AsyncFn() -> Result<OrderKey, String>,
    ) -> Result<StepOutcome, StepError> {
        let mut order = self.0.order(url.to_owned()).await?;
        match order.state().status {
            OrderStatus::Invalid => Err(refused(&mut order, names).await),
            OrderStatus::Pending => Ok(StepOutcome::Pending(pause(age))),
            OrderStatus::Ready => {
                let key = make().await.map_err(StepError::Local)?;
                Ok(StepOutcome::Ready(key))
            }
            // Its key is gone with whoever asked for it.
            OrderStatus::Processing | OrderStatus::Valid => Err(StepError::Lost(
                "its certificate was asked for with another key".to_owned(),
            )),
        }
    }

    /// Asks for the certificate.
    ///
    /// # Errors
    /// See [`StepTrouble`].
    pub async fn finalise(
        &self,
        url: &str,
        key: &OrderKey,
        names: &[Box<str>],
    ) -> Result<StepOutcome, StepTrouble> {
        retried(|| self.try_finalise(url, key, names)).await
    }

    async fn try_finalise(
        &self,
        url: &str,
        key: &OrderKey,
        names: &[Box<str>],
    ) -> Result<StepOutcome, StepError> {
        let mut order = self.0.order(url.to_owned()).await?;
        match order.state().status {
            OrderStatus::Invalid => Err(refused(&mut order, names).await),
            OrderStatus::Pending => Ok(StepOutcome::Pending(SECOND)),
            OrderStatus::Ready => {
                let request = request(key, names)?;
                order.finalize_csr(&request).await?;
                Ok(StepOutcome::Finalised)
            }
            OrderStatus::Processing | OrderStatus::Valid => Ok(StepOutcome::Finalised),
        }
    }

    /// Fetches the certificate, as PEM; none while the authority is not through. The order was
    /// placed so long ago.
    ///
    /// # Errors
    /// See [`StepTrouble`].
    pub async fn fetch(
        &self,
        (url, age): (&str, Millis),
        key: &OrderKey,
        names: &[Box<str>],
    ) -> Result<Result<String, StepOutcome>, StepTrouble> {
        retried(|| self.try_fetch((url, age), key, names)).await
    }

    async fn try_fetch(
        &self,
        (url, age): (&str, Millis),
        key: &OrderKey,
        names: &[Box<str>],
    ) -> Result<Result<String, StepOutcome>, StepError> {
        let mut order = self.0.order(url.to_owned()).await?;
        match order.state().status {
            OrderStatus::Invalid => return Err(refused(&mut order, names).await),
            OrderStatus::Ready => {
                let request = request(key, names)?;
                order.finalize_csr(&request).await?;
            }
            OrderStatus::Pending | OrderStatus::Processing => {
                return Ok(Err(StepOutcome::Pending(pause(age))));
            }
            OrderStatus::Valid => {}
        }
        match order.certificate().await? {
            Some(chain) => Ok(Ok(chain)),
            None => Ok(Err(StepOutcome::Pending(pause(age)))),
        }
    }

    /// Asks when a certificate is to be renewed, by the name that it has in renewal information.
    ///
    /// # Errors
    /// See [`StepTrouble`].
    pub async fn window(&self, ari: &str) -> Result<StepOutcome, StepTrouble> {
        let Some(id) = certificate(ari) else {
            return Ok(StepOutcome::Window(None));
        };
        match self.0.renewal_info(&id).await {
            Ok((info, again)) => {
                let window = &info.suggested_window;
                let moment = |time: time::OffsetDateTime| time.unix_timestamp() * SECOND;
                Ok(StepOutcome::Window(Some(RenewalWindow {
                    start: moment(window.start),
                    end: moment(window.end),
                    look_again: Millis::try_from(again.as_millis()).unwrap_or(Millis::MAX),
                })))
            }
            Err(Error::Unsupported(_)) => Ok(StepOutcome::Window(None)),
            Err(error) => Err(trouble(error)),
        }
    }
}

/// The name of a certificate in renewal information (RFC 9773, section 4.1); none where it does not
/// say by which key it was signed.
pub(super) fn ari_name(der: &[u8]) -> Option<Box<str>> {
    let id = CertificateIdentifier::try_from(&CertificateDer::from(der)).ok()?;
    Some(id.to_string().into())
}

fn certificate(ari: &str) -> Option<CertificateIdentifier<'_>> {
    let (authority, serial) = ari.split_once('.')?;
    Some(CertificateIdentifier {
        authority_key_identifier: authority.into(),
        serial: serial.into(),
    })
}

fn identifier(name: &str) -> Identifier {
    match name.parse() {
        Ok(address) => Identifier::Ip(address),
        Err(_) => Identifier::Dns(name.to_owned()),
    }
}

fn type_of(kind: ChallengeKind) -> ChallengeType {
    match kind {
        ChallengeKind::Http => ChallengeType::Http01,
        ChallengeKind::TlsAlpn => ChallengeType::TlsAlpn01,
        ChallengeKind::Dns => ChallengeType::Dns01,
        ChallengeKind::DnsPersist => ChallengeType::Unknown(kind.as_str().to_owned()),
    }
}

fn new_key(kind: KeyKind) -> Result<KeyPair, rcgen::Error> {
    // Where there are two, who asks for one says which.
    match kind {
        KeyKind::EcdsaP256 | KeyKind::EcdsaAndRsa => KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256),
        KeyKind::Rsa2048 => KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048),
    }
}

/// The refusal of an order of these names that is invalid.
async fn refused(order: &mut instant_acme::Order, names: &[Box<str>]) -> StepError {
    StepError::Refused(reason(order, names.len()).await)
}

fn request(key: &OrderKey, names: &[Box<str>]) -> Result<Vec<u8>, StepError> {
    let wrong = |error: rcgen::Error| StepError::Local(error.to_string());
    let names: Vec<String> = names.iter().map(|name| name.to_string()).collect();
    let pair = KeyPair::try_from(&PrivatePkcs8KeyDer::from(key.expose())).map_err(wrong)?;
    let mut params = CertificateParams::new(names).map_err(wrong)?;
    params.distinguished_name = DistinguishedName::new();
    let request = params.serialize_request(&pair).map_err(wrong)?;
    Ok(request.der().to_vec())
}

/// How long until an order is looked at again that was placed so long ago.
fn pause(age: Millis) -> Millis {
    (age / 4).clamp(100, PENDING_MAX)
}

#[cfg(test)]
mod tests {
    use instant_acme::Identifier;
    use rcgen::{CertificateSigningRequestParams, SanType};
    use rustls_pki_types::CertificateSigningRequestDer;

    use super::{identifier, new_key, request};
    use crate::acme::{KeyKind, OrderKey};

    #[test]
    fn an_address_is_ordered_as_one_and_comes_back_as_it_was_written() {
        for (name, is_address) in [
            ("a.example", false),
            ("192.0.2.7", true),
            ("2001:db8::7", true),
        ] {
            let found = identifier(name);
            assert_eq!(matches!(found, Identifier::Ip(_)), is_address, "{name}");
            assert_eq!(found.authorized(false).to_string(), name);
        }
    }

    #[test]
    fn a_request_has_the_names_and_the_key_that_were_asked_for() {
        for (kind, bytes_min) in [(KeyKind::EcdsaP256, 100), (KeyKind::Rsa2048, 1_000)] {
            let key = new_key(kind).unwrap().serialize_der();
            assert!(key.len() > bytes_min, "{kind:?}");
            let key = OrderKey::new(key);
            let names = ["*.a.example", "192.0.2.7", "2001:db8::7"];
            let names: Vec<Box<str>> = names.map(Box::from).into();
            let Ok(der) = request(&key, &names) else {
                panic!("no request for {kind:?}")
            };
            let der = CertificateSigningRequestDer::from(der);
            let read = CertificateSigningRequestParams::from_der(&der).unwrap();
            let found = read.params.subject_alt_names.into_iter();
            let found = found.map(|name| match name {
                SanType::DnsName(name) => name.as_str().to_owned(),
                SanType::IpAddress(address) => format!("address {address}"),
                other => panic!("{other:?}"),
            });
            let found: Vec<String> = found.collect();
            let addresses = ["address 192.0.2.7", "address 2001:db8::7"];
            assert_eq!(found, ["*.a.example", addresses[0], addresses[1]]);
        }
    }
}
