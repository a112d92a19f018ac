//! Tokens: access tokens that anybody with the public key can check, and refresh tokens that nobody but this service can read.
//!
//! An **access token** is a JWT signed with Ed25519. The algorithm is ours, never the header's; `kid` is the thumbprint of the key
//! (RFC 7638). A **refresh token** is opaque: session, generation and 32 random bytes, with a tag over them (HMAC-SHA256, cut to 128 bits)
//! under a key derived from the signing key. The database holds only the SHA-256 of the random part of the one that is current. The
//! tag tells a token that was good once, whose reuse ends its session, from one that never was, which may not harm anybody: otherwise
//! whoever knows the id of a session could end it.

use aws_lc_rs::{hkdf, hmac, rand};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use jsonwebtoken::{
    Algorithm, DecodingKey, EncodingKey, Header, Validation,
    jwk::{Jwk, ThumbprintHash},
};
use rookery_domain::{SessionId, Timestamp, UserId, credentials::ACCESS_TOKEN_LIVES};
use rookery_storage::sessions::RefreshKey;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use uuid::Uuid;

use crate::{auth::Viewer, config::SigningKey, error::Problem};

/// Who signs, and for whom: this service is both.
const ISSUER: &str = "rookery";
/// How far the clocks of two processes may differ, in seconds.
const LEEWAY_S: u64 = 5;

/// The bytes of a refresh token before its tag: session, generation, random part.
const REFRESH_BODY: usize = 16 + 4 + 32;
/// The bytes of the tag: 128 bits are beyond guessing.
const REFRESH_TAG: usize = 16;

#[derive(Debug, Serialize, Deserialize)]
struct Claims {
    iss: String,
    aud: String,
    sub: UserId,
    sid: SessionId,
    iat: i64,
    exp: i64,
}

/// What makes and reads tokens.
pub struct Tokens {
    header: Header,
    signing: EncodingKey,
    verifying: DecodingKey,
    validation: Validation,
    refresh: hmac::Key,
}

/// A refresh token that was just made: what the client gets, and what is kept of it.
pub struct NewRefresh {
    /// The token.
    pub token: String,
    /// What the database keeps.
    pub key: RefreshKey,
}

impl Tokens {
    /// Makes and reads tokens with this key.
    ///
    /// # Errors
    /// The crypto library refuses the key.
    pub fn new(key: &SigningKey) -> anyhow::Result<Self> {
        let private = key.to_pkcs8()?;
        let signing = EncodingKey::from_ed_der(&private);
        let thumbprint = Jwk::from_encoding_key(&signing, Algorithm::EdDSA)?.thumbprint(ThumbprintHash::SHA256)?;
        let mut validation = Validation::new(Algorithm::EdDSA);
        validation.leeway = LEEWAY_S;
        validation.set_issuer(&[ISSUER]);
        validation.set_audience(&[ISSUER]);
        validation.set_required_spec_claims(&["iss", "aud", "sub", "exp"]);
        let mut derived = [0; 32];
        hkdf::Salt::new(hkdf::HKDF_SHA256, b"rookery")
            .extract(&private)
            .expand(&[b"refresh token v1"], hkdf::HKDF_SHA256)
            .and_then(|key| key.fill(&mut derived))?;
        Ok(Self {
            header: Header { kid: Some(thumbprint), ..Header::new(Algorithm::EdDSA) },
            signing,
            verifying: DecodingKey::from_ed_der(key.public()),
            validation,
            refresh: hmac::Key::new(hmac::HMAC_SHA256, &derived),
        })
    }

    /// An access token that is good for [`ACCESS_TOKEN_LIVES`] from `now`.
    ///
    /// # Errors
    /// The crypto library fails.
    pub fn new_access(&self, viewer: Viewer, now: Timestamp) -> Result<String, Problem> {
        let claims = Claims {
            iss: ISSUER.to_owned(),
            aud: ISSUER.to_owned(),
            sub: viewer.user_id,
            sid: viewer.session_id,
            iat: now.as_millis() / 1000,
            exp: now.plus(ACCESS_TOKEN_LIVES).as_millis() / 1000,
        };
        jsonwebtoken::encode(&self.header, &claims, &self.signing).map_err(Problem::internal)
    }

    /// Who holds this access token: none unless it is one of ours and has not expired. Whether its session was ended is another question.
    #[must_use]
    pub fn read_access(&self, token: &str) -> Option<Viewer> {
        let token = jsonwebtoken::decode::<Claims>(token, &self.verifying, &self.validation).ok()?;
        let ours = token.header.kid == self.header.kid;
        ours.then_some(Viewer { user_id: token.claims.sub, session_id: token.claims.sid })
    }

    /// The refresh token of this generation of a session.
    ///
    /// # Errors
    /// The system has no randomness.
    pub fn new_refresh(&self, session: SessionId, generation: u32) -> Result<NewRefresh, Problem> {
        let mut random = [0; 32];
        rand::fill(&mut random).map_err(Problem::internal)?;
        let mut bytes = Vec::with_capacity(REFRESH_BODY + REFRESH_TAG);
        bytes.extend_from_slice(session.0.as_bytes());
        bytes.extend_from_slice(&generation.to_be_bytes());
        bytes.extend_from_slice(&random);
        bytes.extend_from_slice(&self.tag(&bytes));
        let key = RefreshKey { generation, hash: Sha256::digest(random).into() };
        Ok(NewRefresh { token: URL_SAFE_NO_PAD.encode(bytes), key })
    }

    /// What a refresh token says: none unless it is one of ours. Whether it is still the current one is for the database to say.
    #[must_use]
    pub fn read_refresh(&self, token: &str) -> Option<(SessionId, RefreshKey)> {
        let bytes = URL_SAFE_NO_PAD.decode(token).ok()?;
        let (body, tag) = bytes.split_last_chunk::<REFRESH_TAG>()?;
        if body.len() != REFRESH_BODY || !bool::from(self.tag(body).ct_eq(tag)) {
            return None;
        }
        let (session, rest) = body.split_first_chunk::<16>()?;
        let (generation, random) = rest.split_first_chunk::<4>()?;
        let key = RefreshKey { generation: u32::from_be_bytes(*generation), hash: Sha256::digest(random).into() };
        Some((SessionId(Uuid::from_bytes(*session)), key))
    }

    fn tag(&self, body: &[u8]) -> [u8; REFRESH_TAG] {
        let mut tag = [0; REFRESH_TAG];
        tag.copy_from_slice(&hmac::sign(&self.refresh, body).as_ref()[..REFRESH_TAG]);
        tag
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test that fails to unwrap has failed")]

    use base64::engine::general_purpose::STANDARD;
    use secrecy::SecretString;
    use serde_json::{Value, json};

    use super::*;

    fn tokens(seed: u8) -> Tokens {
        Tokens::new(&SigningKey::parse(&SecretString::from(STANDARD.encode([seed; 32]))).unwrap()).unwrap()
    }

    fn viewer() -> Viewer {
        Viewer { user_id: UserId(Uuid::from_u128(1)), session_id: SessionId(Uuid::from_u128(2)) }
    }

    fn now() -> Timestamp {
        rookery_storage::now()
    }

    fn decoded(part: &str) -> Value {
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap()
    }

    #[test]
    fn an_access_token_says_who_holds_it() {
        let tokens = tokens(7);
        let token = tokens.new_access(viewer(), now()).unwrap();
        assert_eq!(tokens.read_access(&token), Some(viewer()));
        let parts: Vec<_> = token.split('.').collect();
        // The thumbprint of this key, as RFC 7638 computes it.
        let jwk = format!(r#"{{"crv":"Ed25519","kty":"OKP","x":"{}"}}"#, URL_SAFE_NO_PAD.encode(public(7)));
        let kid = URL_SAFE_NO_PAD.encode(Sha256::digest(jwk));
        assert_eq!(decoded(parts[0]), json!({ "typ": "JWT", "alg": "EdDSA", "kid": kid }));
        let claims = decoded(parts[1]);
        assert_eq!(claims["exp"].as_i64().unwrap() - claims["iat"].as_i64().unwrap(), 600);
    }

    fn public(seed: u8) -> Vec<u8> {
        SigningKey::parse(&SecretString::from(STANDARD.encode([seed; 32]))).unwrap().public().to_vec()
    }

    #[test]
    fn an_access_token_expires_after_ten_minutes() {
        let tokens = tokens(7);
        let made = |ago_s: u64| tokens.new_access(viewer(), now().minus(std::time::Duration::from_secs(ago_s))).unwrap();
        assert!(tokens.read_access(&made(590)).is_some());
        assert!(tokens.read_access(&made(610)).is_none());
    }

    #[test]
    fn a_foreign_unsigned_or_altered_access_token_is_none() {
        let ours = tokens(7);
        let good = ours.new_access(viewer(), now()).unwrap();
        let [head, body, signature] = good.split('.').collect::<Vec<_>>().try_into().unwrap();
        let part = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let (none, hmac) = (part(json!({ "alg": "none", "typ": "JWT" })), part(json!({ "alg": "HS256", "typ": "JWT" })));
        let mut other = decoded(body);
        other["sub"] = json!(Uuid::from_u128(3));
        // The public key taken for a shared secret.
        let signed = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &public(7)), format!("{hmac}.{body}").as_bytes());
        for token in [
            tokens(8).new_access(viewer(), now()).unwrap(),
            format!("{none}.{body}."),
            format!("{none}.{body}.{signature}"),
            format!("{hmac}.{body}.{}", URL_SAFE_NO_PAD.encode(signed)),
            format!("{head}.{}.{signature}", part(other)),
            format!("{head}.{body}.{}", URL_SAFE_NO_PAD.encode([0; 64])),
            format!("{head}.{body}"),
            format!("{good}.{signature}"),
            String::new(),
            "..".to_owned(),
        ] {
            assert_eq!(ours.read_access(&token), None, "{token}");
        }
    }

    #[test]
    fn an_access_token_for_others_or_without_an_end_is_none() {
        let ours = tokens(7);
        let whole = json!({
            "iss": ISSUER, "aud": ISSUER, "sub": Uuid::from_u128(1), "sid": Uuid::from_u128(2), "iat": 0, "exp": 9_999_999_999_u64
        });
        let read = |claims: &Value| ours.read_access(&jsonwebtoken::encode(&ours.header, claims, &ours.signing).unwrap());
        assert_eq!(read(&whole), Some(viewer()));
        for claim in ["iss", "aud", "sub", "sid", "iat", "exp"] {
            let (mut without, mut other) = (whole.clone(), whole.clone());
            without.as_object_mut().unwrap().remove(claim);
            other[claim] = json!("another");
            assert_eq!((read(&without), read(&other)), (None, None), "{claim}");
        }
    }

    #[test]
    fn a_refresh_token_says_what_was_put_in() {
        let tokens = tokens(7);
        let session = viewer().session_id;
        let made = tokens.new_refresh(session, 3).unwrap();
        assert_eq!(tokens.read_refresh(&made.token), Some((session, made.key)));
        assert_eq!(made.key.generation, 3);
        assert_ne!(tokens.new_refresh(session, 3).unwrap().token, made.token);
    }

    #[test]
    fn a_foreign_or_altered_refresh_token_is_none() {
        let ours = tokens(7);
        let good = ours.new_refresh(viewer().session_id, 1).unwrap().token;
        assert_eq!(tokens(8).read_refresh(&good), None);
        let bytes = URL_SAFE_NO_PAD.decode(&good).unwrap();
        for at in 0..bytes.len() {
            let mut altered = bytes.clone();
            altered[at] ^= 1;
            assert_eq!(ours.read_refresh(&URL_SAFE_NO_PAD.encode(altered)), None, "byte {at}");
        }
        for other in ["", "garbage", "a.b.c", &good[1..], &format!("{good}AAAA"), &format!("{good}=")] {
            assert_eq!(ours.read_refresh(other), None, "{other}");
        }
    }
}
