//! Rate limits: a bucket per user, or per address where nobody is logged in (GCRA, by the `governor` crate).
//!
//! Buckets live in the memory of one process: a caller spread over several processes has several buckets. That bounds abuse, which is
//! what limits are for; it does not meter use.

use std::{
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

/// Requests that a user may send at once, and that come back per second: a busy client opening a screen sends some twenty.
const PER_USER: (NonZeroU32, NonZeroU32) = (NonZeroU32::new(600).unwrap(), NonZeroU32::new(100).unwrap());
/// The same for an anonymous address, behind which there may be many people.
const PER_ADDRESS: (NonZeroU32, NonZeroU32) = (NonZeroU32::new(1500).unwrap(), NonZeroU32::new(300).unwrap());

/// How often buckets that are full again are forgotten.
pub const EVICT_EVERY: Duration = Duration::from_secs(60);

type Buckets<K> = RateLimiter<K, DefaultKeyedStateStore<K>, DefaultClock, StateInformationMiddleware>;

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
        let quota = |(burst, per_second)| Quota::per_second(per_second).allow_burst(burst);
        Self {
            users: RateLimiter::keyed(quota(PER_USER)).with_middleware(),
            addresses: RateLimiter::keyed(quota(PER_ADDRESS)).with_middleware(),
            enforced: config.rate_limit,
            trusted_proxies: config.trusted_proxies.clone(),
        }
    }

    /// Forgets buckets that are full again, which are the same as none.
    pub fn evict(&self) {
        self.users.retain_recent();
        self.users.shrink_to_fit();
        self.addresses.retain_recent();
        self.addresses.shrink_to_fit();
    }

    fn charge(&self, viewer: Option<UserId>, address: IpAddr) -> Standing {
        match viewer {
            Some(user) => charge(&self.users, &user, PER_USER),
            None => charge(&self.addresses, &whole_site(address), PER_ADDRESS),
        }
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

fn charge<K: Clone + Eq + std::hash::Hash>(
    buckets: &Buckets<K>,
    key: &K,
    (burst, per_second): (NonZeroU32, NonZeroU32),
) -> Standing {
    let (remaining, wait) = match buckets.check_key(key) {
        Ok(state) => (state.remaining_burst_capacity(), None),
        Err(refusal) => (0, Some(refusal.wait_time_from(DefaultClock::default().now()))),
    };
    let missing = burst.get().saturating_sub(remaining);
    Standing {
        limit: burst.get(),
        remaining,
        reset: Duration::from_secs_f64(f64::from(missing) / f64::from(per_second.get())),
        wait,
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
    // Only a request that came over no socket has no peer.
    let peer = request.peer_addr().map_or(Ipv6Addr::UNSPECIFIED.into(), |address| address.ip());
    let standing = limits.charge(viewer, limits.address(peer, request.headers()));
    match standing.wait {
        Some(wait) if limits.enforced => {
            let mut error = Error::from(Problem::new(Code::RateLimited).retry_after(wait));
            error.add_response_mapper(move |mut response| {
                standing.write(response.headers_mut());
                response
            });
            Err(error)
        }
        _ => {
            let mut answer = next.call(request).await?;
            standing.write(answer.headers_mut());
            Ok(answer)
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test that fails to unwrap has failed")]

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

    #[test]
    fn beyond_the_burst_one_waits() {
        let limits = limits("");
        let address = "192.0.2.1".parse().unwrap();
        // The bucket refills while it is emptied: 300 a second.
        let refused = (0..100_000).map(|_| limits.charge(None, address)).find(|standing| standing.wait.is_some()).unwrap();
        assert_eq!(refused.remaining, 0);
        assert!(refused.wait.unwrap() <= Duration::from_millis(4));
        limits.evict();
        assert!(limits.charge(None, "192.0.2.2".parse().unwrap()).wait.is_none());
    }
}
