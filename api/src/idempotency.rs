//! Idempotency keys: a client that got no answer may send the same request again, as often as it likes, and makes one resource.
//!
//! What is made, and by whom, is settled in the database ([`rookery_storage::idempotency`]); here a call waits for its turn, and an answer
//! is put together from what was kept.

use std::{future::Ready, time::Duration};

use actix_web::{
    FromRequest, HttpRequest, HttpResponse,
    dev::Payload,
    http::{StatusCode, header},
};
use rookery_domain::UserId;
use rookery_storage::{
    Store,
    idempotency::{Answer, Claim, KeyedRequest},
    new_id, now,
};
use serde::Serialize;
use utoipa::IntoParams;
use uuid::Uuid;

use crate::error::{Code, Problem, Result};

/// The header that carries a key.
const HEADER: &str = "idempotency-key";

/// The first and the longest pause of a call that waits for another one's answer: a post is made in a few milliseconds.
const PAUSE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(250));

/// The key of a request, if it has one.
#[derive(Debug, Clone)]
pub struct IdempotencyKey {
    key: Option<String>,
    path: String,
}

/// For the documentation: the key that [`IdempotencyKey`] reads.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "it describes a header that `IdempotencyKey` reads")]
pub struct IdempotencyParam {
    /// Chosen by the client, 1 to 255 visible ASCII characters: repeating the request with it within 24 hours makes nothing new and gives
    /// the same answer.
    #[param(rename = "Idempotency-Key", example = "b7e1c9a2", min_length = 1, max_length = 255)]
    idempotency_key: Option<String>,
}

impl FromRequest for IdempotencyKey {
    type Error = Problem;
    type Future = Ready<Result<Self>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let mut values = request.headers().get_all(HEADER);
        let key = match (values.next(), values.next()) {
            (None, _) => Ok(None),
            (Some(value), None) => read(value.as_bytes()).map(Some),
            _ => Err(Problem::new(Code::InvalidIdempotencyKey).detail("The key is given twice")),
        };
        std::future::ready(key.map(|key| Self { key, path: request.path().to_owned() }))
    }
}

fn read(value: &[u8]) -> Result<String> {
    let visible = (1..=255).contains(&value.len()) && value.iter().all(u8::is_ascii_graphic);
    match String::from_utf8(value.to_vec()) {
        Ok(key) if visible => Ok(key),
        _ => Err(Problem::new(Code::InvalidIdempotencyKey)),
    }
}

/// A resource that was made.
#[derive(Debug)]
pub struct Made<T> {
    /// Where it is.
    pub location: String,
    /// What it is.
    pub body: T,
}

/// Answers 201 with a resource that `make` makes, at most once for one key of the caller, however many calls there are. `body` is the
/// parsed body, in which two spellings of one request are the same; `make` is given the id of the new resource.
///
/// # Errors
/// Whatever `make` gives (a refusal leaves the key as if it had not been used), `idempotency_key_reused`, faults.
pub async fn create_once<T: Serialize>(
    store: &Store,
    caller: UserId,
    key: IdempotencyKey,
    body: &impl Serialize,
    make: impl AsyncFnOnce(Uuid) -> Result<Made<T>>,
) -> Result<HttpResponse> {
    let IdempotencyKey { key: Some(key), path } = key else {
        return Ok(respond(answer(make(new_id()).await?)?, false));
    };
    let body = serde_json::to_vec(body).map_err(Problem::internal)?;
    let request = KeyedRequest::new(caller.into(), &path, &key, &body);
    let (resource, mut pause) = (new_id(), PAUSE.0);
    let claim = loop {
        match store.claim_key(&request, resource, now()).await? {
            Claim::Mine(claim) => break claim,
            Claim::Answered(answer) => return Ok(respond(answer, true)),
            Claim::Reused => return Err(Problem::new(Code::IdempotencyKeyReused)),
            // Bounded by the other call's lease, after which this one takes over, and by the deadline of every request.
            Claim::Busy => tokio::time::sleep(pause).await,
        }
        pause = (pause * 2).min(PAUSE.1);
    };
    match make(claim.resource).await {
        Ok(made) => {
            let own = answer(made)?;
            let kept = store.keep_answer(&claim, own.clone()).await?;
            let replayed = kept != own;
            Ok(respond(kept, replayed))
        }
        Err(problem) => {
            // A fault may have come after the insert: whoever comes next must go on with the same id.
            if problem.code().status().is_server_error() {
                store.release_key(&claim, now()).await?;
            } else {
                store.give_up_key(&claim).await?;
            }
            Err(problem)
        }
    }
}

fn answer<T: Serialize>(made: Made<T>) -> Result<Answer> {
    Ok(Answer {
        status: StatusCode::CREATED.as_u16(),
        location: Some(made.location),
        body: serde_json::to_string(&made.body).map_err(Problem::internal)?,
    })
}

fn respond(answer: Answer, replayed: bool) -> HttpResponse {
    let mut response = HttpResponse::build(StatusCode::from_u16(answer.status).unwrap_or(StatusCode::CREATED));
    if let Some(location) = answer.location {
        response.insert_header((header::LOCATION, location));
    }
    if replayed {
        response.insert_header(("Idempotency-Replayed", "true"));
    }
    response.content_type(header::ContentType::json()).body(answer.body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_1_to_255_visible_ascii_characters() {
        let longest = "~".repeat(255);
        for key in ["a", "b7e1-c9a2_!", &longest] {
            assert_eq!(read(key.as_bytes()).ok().as_deref(), Some(key));
        }
        for other in ["", "with space", "tab\t", "café", &"a".repeat(256)] {
            assert_eq!(read(other.as_bytes()).map_err(|problem| problem.code()), Err(Code::InvalidIdempotencyKey), "{other:?}");
        }
    }
}
