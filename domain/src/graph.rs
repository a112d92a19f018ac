//! Who may follow whom.

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

/// What forbids a follow, as found after its edge was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// Both accounts are live.
    pub both_live: bool,
    /// A block stands between the two, in either direction.
    pub blocked: bool,
    /// How many accounts the follower follows, this one left out.
    pub following: i64,
}

/// Whether the edge may stay, or why it must be withdrawn. Blocks come first: who is blocked learns nothing else.
///
/// # Errors
/// The refusal that the caller is told.
pub const fn settle(standing: Standing, follow_limit: i64) -> Result<(), FollowRefusal> {
    if !standing.both_live {
        Err(FollowRefusal::NotFound)
    } else if standing.blocked {
        Err(FollowRefusal::Blocked)
    } else if standing.following >= follow_limit {
        Err(FollowRefusal::LimitReached)
    } else {
        Ok(())
    }
}
