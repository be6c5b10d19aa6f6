//! An issuer of JSON Web Tokens.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// A key that tokens are signed with.
pub struct Issuer(EcdsaKeyPair);

impl Default for Issuer {
    fn default() -> Self {
        Issuer::new()
    }
}

impl Issuer {
    /// An issuer with a fresh key.
    ///
    /// # Panics
    /// Where the cryptographic library refuses.
    pub fn new() -> Self {
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING);
        Issuer(pair.expect("a key"))
    }

    /// Its keys as a JWK set (RFC 7517).
    pub fn keys(&self) -> String {
        let point = &self.0.public_key().as_ref()[1..];
        let (x, y) = point.split_at(32);
        let [x, y] = [x, y].map(|part| URL_SAFE_NO_PAD.encode(part));
        format!(r#"{{"keys":[{{"kty":"EC","crv":"P-256","kid":"k","x":"{x}","y":"{y}"}}]}}"#)
    }

    /// A token with these claims, a JSON object.
    ///
    /// # Panics
    /// Where the cryptographic library refuses.
    pub fn token(&self, claims: &str) -> String {
        let encode = |text: &str| URL_SAFE_NO_PAD.encode(text);
        let head = encode(r#"{"alg":"ES256","kid":"k"}"#);
        let message = format!("{head}.{}", encode(claims));
        let signature = self.0.sign(&SystemRandom::new(), message.as_bytes());
        let signature = URL_SAFE_NO_PAD.encode(signature.expect("a signature"));
        format!("{message}.{signature}")
    }

    /// The arguments of a request that bears such a token, as curl has them.
    pub fn bearer(&self, claims: &str) -> [String; 2] {
        let field = format!("Authorization: Bearer {}", self.token(claims));
        ["--header".to_owned(), field]
    }
}
