//! Jobs: background work that outlives the request that asked for it, as an administrator sees it.

use crate::{JobId, Timestamp, UserId};

/// What a job does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobKind {
    /// Removes everything that a deleted account leaves behind, and the account last.
    Deletion,
    /// Rewrites the copies of an account's name wherever posts and comments keep them.
    Rename,
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

/// A job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// Its id, which also says when it was asked for.
    pub id: JobId,
    /// What it does.
    pub kind: JobKind,
    /// Whose account it is about.
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
}
