//! Who may follow, block and mute whom.

/// Why a follow is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FollowRefusal {
    /// Nobody follows themselves.
    SelfFollow,
    /// One of the two blocks the other, whichever it is.
    Blocked,
    /// The follower follows as many accounts as anybody may.
    LimitReached,
    /// There is no such account (any more).
    NotFound,
}

/// How many accounts one may block: whoever needs more is not helped by blocks, and reads that ask for all of them stay bounded.
pub const BLOCK_LIMIT: i64 = 10_000;
/// How many accounts one may mute, for the same reason.
pub const MUTE_LIMIT: i64 = 10_000;

/// Why a block is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockRefusal {
    /// Nobody blocks themselves.
    SelfBlock,
    /// The blocker blocks [`BLOCK_LIMIT`] accounts already.
    LimitReached,
    /// There is no such account (any more).
    NotFound,
}

/// Why a mute is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MuteRefusal {
    /// Nobody mutes themselves.
    SelfMute,
    /// The muter mutes [`MUTE_LIMIT`] accounts already.
    LimitReached,
    /// There is no such account (any more).
    NotFound,
}

/// What forbids a follow or holds it up, as found after its edge was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// Both accounts are live.
    pub both_live: bool,
    /// A block stands between the two, in either direction.
    pub blocked: bool,
    /// The followee is private now, and has not consented to this very follow.
    pub needs_consent: bool,
    /// How many accounts the follower follows, this one left out.
    pub following: i64,
}

/// What an edge that nothing forbids may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    /// A follow.
    Follow,
    /// A request, until the followee consents.
    Request,
}

/// What the edge may be, or why it must be withdrawn. Blocks come first: who is blocked learns nothing else.
///
/// # Errors
/// The refusal that the caller is told.
pub const fn settle(standing: Standing, follow_limit: i64) -> Result<Settled, FollowRefusal> {
    if !standing.both_live {
        Err(FollowRefusal::NotFound)
    } else if standing.blocked {
        Err(FollowRefusal::Blocked)
    } else if standing.following >= follow_limit {
        Err(FollowRefusal::LimitReached)
    } else if standing.needs_consent {
        Ok(Settled::Request)
    } else {
        Ok(Settled::Follow)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FREE: Standing = Standing { both_live: true, blocked: false, needs_consent: false, following: 0 };

    #[test]
    fn a_private_account_is_asked_and_a_block_is_told_first() {
        assert_eq!(settle(FREE, 1), Ok(Settled::Follow));
        assert_eq!(settle(Standing { needs_consent: true, ..FREE }, 1), Ok(Settled::Request));
        assert_eq!(settle(Standing { needs_consent: true, blocked: true, following: 9, ..FREE }, 1), Err(FollowRefusal::Blocked));
        assert_eq!(settle(Standing { following: 1, ..FREE }, 1), Err(FollowRefusal::LimitReached));
    }
}
