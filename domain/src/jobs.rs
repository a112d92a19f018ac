//! Jobs: background work that outlives the request that asked for it, as an administrator sees it.

use crate::{JobId, Timestamp, UserId};

/// What a job does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobKind {
    /// Removes everything that a deleted account leaves behind, and the account last.
    Deletion,
    /// Rewrites the copies of an account's name wherever posts and comments keep them.
    Rename,
    /// Checks every invariant.
    Verify,
    /// Checks every invariant and mends what does not hold.
    Repair,
}

/// How far a job is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobState {
    /// It is being done, or waits for its turn.
    Pending,
    /// It is done.
    Done,
    /// It failed too often and waits for somebody to look at it.
    Parked,
}

/// What a check found of one kind of drift: bounded, however much there is of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Finding {
    /// Which invariant does not hold, in one word (`follower_count`).
    pub kind: String,
    /// How often.
    pub found: i64,
    /// How often it was mended.
    pub repaired: i64,
    /// The first few: about what, what is found, what should be, and what was done.
    pub examples: Vec<String>,
}

/// A job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// Its id, which also says when it was asked for.
    pub id: JobId,
    /// What it does.
    pub kind: JobKind,
    /// Whose account it is about; of a check, who asked for it.
    pub user: UserId,
    /// How far it is.
    pub state: JobState,
    /// Attempts in a row that came to nothing.
    pub attempts: i32,
    /// Documents dealt with so far.
    pub progress: i64,
    /// When a worker may take it (again); none once it is done or parked.
    pub run_after: Option<Timestamp>,
    /// When it was done.
    pub finished_at: Option<Timestamp>,
    /// What a check has found so far; none of another kind of job.
    pub findings: Vec<Finding>,
}
