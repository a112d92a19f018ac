//! Rate limits: a bucket per user, or per address where nobody is logged in (GCRA, by the `governor` crate).
//!
//! Buckets live in the memory of one process: a caller spread over several processes has several buckets. That bounds abuse, which is
//! what limits are for; it does not meter use.

use std::{
    hash::Hash,
    net::{IpAddr, Ipv6Addr},
    num::NonZeroU32,
    time::Duration,
};

use actix_web::{
    Error, HttpMessage as _,
    body::MessageBody,
    dev::{ServiceRequest, ServiceResponse},
    http::header::{HeaderMap, HeaderName, HeaderValue},
    middleware::Next,
    web::Data,
};
use governor::{
    Quota, RateLimiter,
    clock::{Clock as _, DefaultClock},
    middleware::StateInformationMiddleware,
    state::keyed::DefaultKeyedStateStore,
};
use rookery_domain::UserId;

use crate::{
    auth::Viewer,
    config::{Config, Network},
    error::{Code, Problem, whole_seconds},
};

/// What a user may send: a busy client that opens a screen sends some twenty requests.
const PER_USER: Quota = quota(100, 600);
/// What an anonymous address may send, behind which there may be many people.
const PER_ADDRESS: Quota = quota(300, 1500);

const fn quota(per_second: u32, at_once: u32) -> Quota {
    let (per_second, at_once) = (NonZeroU32::new(per_second), NonZeroU32::new(at_once));
    Quota::per_second(per_second.expect("above zero")).allow_burst(at_once.expect("above zero"))
}

/// A bucket for every key that was seen lately.
#[derive(Debug)]
struct Buckets<K: Clone + Eq + Hash> {
    quota: Quota,
    limiter: RateLimiter<K, DefaultKeyedStateStore<K>, DefaultClock, StateInformationMiddleware>,
}

/// The buckets of this process.
#[derive(Debug)]
pub struct Limits {
    users: Buckets<UserId>,
    addresses: Buckets<IpAddr>,
    enforced: bool,
    trusted_proxies: Vec<Network>,
}

/// How one bucket stands after a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Standing {
    limit: u32,
    remaining: u32,
    reset: Duration,
    /// How long the caller has to wait; none if the request may pass.
    wait: Option<Duration>,
}

impl Limits {
    /// Empty books.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        Self::with(config, PER_USER, PER_ADDRESS)
    }

    fn with(config: &Config, per_user: Quota, per_address: Quota) -> Self {
        Self {
            users: Buckets { quota: per_user, limiter: RateLimiter::keyed(per_user).with_middleware() },
            addresses: Buckets { quota: per_address, limiter: RateLimiter::keyed(per_address).with_middleware() },
            enforced: config.rate_limit,
            trusted_proxies: config.trusted_proxies.clone(),
        }
    }

    /// Forgets buckets that are full again, which are the same as none.
    pub fn evict(&self) {
        self.users.limiter.retain_recent();
        self.users.limiter.shrink_to_fit();
        self.addresses.limiter.retain_recent();
        self.addresses.limiter.shrink_to_fit();
    }

    fn charge(&self, viewer: Option<UserId>, address: IpAddr) -> Standing {
        match viewer {
            Some(user) => self.users.charge(&user),
            None => self.addresses.charge(&whole_site(address)),
        }
    }

    /// The answer to a request beyond the limit, if limits are enforced.
    fn refusal(&self, standing: Standing) -> Option<Error> {
        let wait = standing.wait.filter(|_| self.enforced)?;
        Some(Problem::new(Code::RateLimited).retry_after(wait).into())
    }

    fn address_of(&self, request: &ServiceRequest) -> IpAddr {
        // Only a request that came over no socket has no peer.
        let peer = request.peer_addr().map_or(Ipv6Addr::UNSPECIFIED.into(), |address| address.ip());
        self.address(peer, request.headers())
    }

    /// The address that a request comes from: the peer's, or, where the peer is a trusted proxy, the rightmost of `X-Forwarded-For`
    /// that is not. What stands further left was written by the caller.
    fn address(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let trusted = |address: IpAddr| self.trusted_proxies.iter().any(|network| network.contains(address));
        let mut address = peer.to_canonical();
        if !trusted(address) {
            return address;
        }
        let forwarded: Vec<_> =
            headers.get_all("x-forwarded-for").filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(',')).collect();
        for hop in forwarded.iter().rev() {
            // A hop that is no address ends what can be believed.
            let Ok(hop) = hop.trim().parse::<IpAddr>() else { break };
            address = hop.to_canonical();
            if !trusted(address) {
                break;
            }
        }
        address
    }
}

impl<K: Clone + Eq + Hash> Buckets<K> {
    fn charge(&self, key: &K) -> Standing {
        let (remaining, wait) = match self.limiter.check_key(key) {
            Ok(state) => (state.remaining_burst_capacity(), None),
            Err(refusal) => (0, Some(refusal.wait_time_from(DefaultClock::default().now()))),
        };
        let limit = self.quota.burst_size().get();
        Standing { limit, remaining, reset: self.quota.replenish_interval() * limit.saturating_sub(remaining), wait }
    }
}

/// One household has a whole /64 of IPv6 addresses, and must not have that many buckets.
fn whole_site(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX)).into(),
    }
}

impl Standing {
    fn write(self, headers: &mut HeaderMap) {
        headers.insert(HeaderName::from_static("ratelimit-limit"), HeaderValue::from(self.limit));
        headers.insert(HeaderName::from_static("ratelimit-remaining"), HeaderValue::from(self.remaining));
        headers.insert(HeaderName::from_static("ratelimit-reset"), HeaderValue::from(whole_seconds(self.reset)));
    }
}

/// Charges the address of a request whose token was refused: guessing tokens must not be free. Stands outside the reading of tokens.
pub async fn limit_refused(
    limits: Data<Limits>,
    request: ServiceRequest,
    next: Next<impl MessageBody>,
) -> Result<ServiceResponse<impl MessageBody>, Error> {
    let address = limits.address_of(&request);
    next.call(request).await.map_err(|error| {
        if error.as_error::<Problem>().is_none_or(|problem| problem.code() != Code::InvalidToken) {
            return error;
        }
        let standing = limits.charge(None, address);
        let refusal = limits.refusal(standing).unwrap_or(error);
        with_headers(standing, refusal)
    })
}

/// Charges the caller's bucket, refuses what is beyond it, and says in every answer how it stands. Runs after the token was read, so
/// that a user's bucket follows the user and not the address.
pub async fn limit(
    limits: Data<Limits>,
    request: ServiceRequest,
    next: Next<impl MessageBody>,
) -> Result<ServiceResponse<impl MessageBody>, Error> {
    let viewer = request.extensions().get::<Viewer>().map(|viewer| viewer.user_id);
    if let Some(viewer) = viewer {
        tracing::Span::current().record("viewer", tracing::field::display(viewer));
    }
    let standing = limits.charge(viewer, limits.address_of(&request));
    if let Some(refusal) = limits.refusal(standing) {
        return Err(with_headers(standing, refusal));
    }
    let mut answer = next.call(request).await?;
    standing.write(answer.headers_mut());
    Ok(answer)
}

fn with_headers(standing: Standing, mut error: Error) -> Error {
    error.add_response_mapper(move |mut response| {
        standing.write(response.headers_mut());
        response
    });
    error
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test that fails to unwrap has failed")]

    use actix_web::{App, middleware::from_fn, test as calls};

    use super::*;

    fn limits(proxies: &str) -> Limits {
        let proxies = proxies.to_owned();
        Limits::new(&Config::from_vars(|name| (name == "ROOKERY_TRUSTED_PROXIES").then(|| proxies.clone())).unwrap())
    }

    fn address_of(limits: &Limits, peer: &str, forwarded: &[&str]) -> String {
        let mut headers = HeaderMap::new();
        for value in forwarded {
            headers.append(HeaderName::from_static("x-forwarded-for"), HeaderValue::from_str(value).unwrap());
        }
        limits.address(peer.parse().unwrap(), &headers).to_string()
    }

    #[test]
    fn who_is_no_proxy_of_ours_cannot_choose_an_address() {
        assert_eq!(address_of(&limits(""), "198.51.100.7", &["203.0.113.1"]), "198.51.100.7");
        assert_eq!(address_of(&limits("10.0.0.0/8"), "198.51.100.7", &["203.0.113.1"]), "198.51.100.7");
    }

    #[test]
    fn behind_our_proxies_the_rightmost_foreign_address_counts() {
        let limits = limits("10.0.0.0/8");
        assert_eq!(address_of(&limits, "10.0.0.1", &["203.0.113.1, 198.51.100.7, 10.0.0.9"]), "198.51.100.7");
        assert_eq!(address_of(&limits, "10.0.0.1", &["203.0.113.1", "198.51.100.7"]), "198.51.100.7");
        assert_eq!(address_of(&limits, "10.0.0.1", &["203.0.113.1, unknown"]), "10.0.0.1");
        assert_eq!(address_of(&limits, "10.0.0.1", &[]), "10.0.0.1");
    }

    #[test]
    fn addresses_of_one_ipv6_site_share_a_bucket_and_users_have_their_own() {
        let limits = limits("");
        let user = |n| Some(UserId(uuid::Uuid::from_u128(n)));
        let first = limits.charge(None, "2001:db8::1".parse().unwrap());
        let second = limits.charge(None, "2001:db8::2".parse().unwrap());
        assert_eq!((first.remaining, first.limit), (1499, 1500));
        assert!(second.remaining < 1499);
        assert_eq!(limits.charge(user(1), "2001:db8::1".parse().unwrap()).remaining, 599);
        assert_eq!(limits.charge(user(2), "2001:db8::1".parse().unwrap()).remaining, 599);
    }

    #[actix_web::test]
    async fn beyond_the_burst_one_is_told_to_wait() {
        for (enforced, third) in [("on", 429), ("off", 404)] {
            let config = Config::from_vars(|name| (name == "ROOKERY_RATE_LIMIT").then(|| enforced.to_owned())).unwrap();
            let hourly = Quota::per_hour(NonZeroU32::new(2).unwrap());
            let limits = Data::new(Limits::with(&config, hourly, hourly));
            let app = App::new().app_data(limits).wrap(from_fn(limit));
            let app = calls::init_service(app).await;
            let mut answers = Vec::new();
            for _ in 0..3 {
                let answer = calls::try_call_service(&app, calls::TestRequest::get().to_request()).await;
                answers.push(answer.map_or_else(|error| error.error_response(), |answer| answer.map_into_boxed_body().into()));
            }
            let number = |name: &str| answers[2].headers().get(name).unwrap().to_str().unwrap().parse::<u32>().unwrap();
            assert_eq!(answers[1].status(), 404);
            assert_eq!(answers[2].status(), third);
            assert_eq!((number("ratelimit-limit"), number("ratelimit-remaining")), (2, 0));
            assert_eq!(number("ratelimit-reset"), 3600);
            if third == 429 {
                assert!((1700..=1800).contains(&number("retry-after")));
            }
        }
    }

    #[test]
    fn buckets_that_are_full_again_are_forgotten() {
        let limits = limits("");
        limits.charge(None, "192.0.2.1".parse().unwrap());
        assert_eq!(limits.addresses.limiter.len(), 1);
        while !limits.addresses.limiter.is_empty() {
            std::thread::yield_now();
            limits.evict();
        }
    }
}
