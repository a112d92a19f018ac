//! Faults of the database, mapped from the driver's errors in one place.

use mongodb::error::{Error as DriverError, ErrorKind, WriteFailure};

/// What this crate's functions give back.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A fault: never an outcome that a caller could expect.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The database does not answer. Trying again later may help.
    #[error("the database does not answer")]
    Unavailable(#[source] DriverError),
    /// The database took longer than an operation may.
    #[error("the database took too long")]
    Timeout(#[source] DriverError),
    /// A transaction met another that wrote the same document. Trying again at once may help.
    #[error("a write conflict")]
    Conflict(#[source] DriverError),
    /// Others kept undoing what the call was doing. Trying again later may help.
    #[error("the documents are too busy")]
    Busy,
    /// A document that this version cannot read: damaged, or written by a newer version. Never skipped, never overwritten.
    #[error("a document in {collection} cannot be read: {detail}")]
    Corrupt {
        /// The collection it is in.
        collection: &'static str,
        /// Which document and what is wrong with it.
        detail: String,
    },
    /// The schema in the database is not the one this version works with.
    #[error("the database is at schema {found}, this version works with {wanted}: {advice}")]
    Schema {
        /// What the database says.
        found: i32,
        /// What this version has.
        wanted: i32,
        /// What to do.
        advice: &'static str,
    },
    /// Anything else the database says: a bug, or a server that lacks something.
    #[error("the database refused an operation")]
    Refused(#[source] DriverError),
    /// The embedded database cannot be started.
    #[error("{0}")]
    Embedded(String),
}

impl Error {
    /// Whether the same call may succeed later without anything being mended.
    #[must_use]
    pub const fn retryable(&self) -> bool {
        matches!(self, Self::Unavailable(_) | Self::Timeout(_) | Self::Conflict(_) | Self::Busy)
    }

    /// Whether a transaction met another that wrote the same document.
    #[must_use]
    pub const fn is_conflict(&self) -> bool {
        matches!(self, Self::Conflict(_))
    }
}

/// `WriteConflict`, in every version of the server.
const WRITE_CONFLICT: i32 = 112;
const MAX_TIME_EXPIRED: i32 = 50;
const DUPLICATE_KEY: i32 = 11000;

impl From<DriverError> for Error {
    fn from(error: DriverError) -> Self {
        match error.kind.as_ref() {
            _ if code_of(&error) == Some(WRITE_CONFLICT) => Self::Conflict(error),
            _ if code_of(&error) == Some(MAX_TIME_EXPIRED) => Self::Timeout(error),
            ErrorKind::Io(_)
            | ErrorKind::ServerSelection { .. }
            | ErrorKind::ConnectionPoolCleared { .. }
            | ErrorKind::DnsResolve { .. }
            | ErrorKind::Shutdown => Self::Unavailable(error),
            ErrorKind::BsonDeserialization(_) => Self::Corrupt { collection: "the database", detail: error.to_string() },
            _ if error.contains_label("TransientTransactionError") => Self::Conflict(error),
            _ if error.contains_label("RetryableWriteError") => Self::Unavailable(error),
            _ => Self::Refused(error),
        }
    }
}

/// The server's code, whatever shape the driver gave the error.
fn code_of(error: &DriverError) -> Option<i32> {
    match error.kind.as_ref() {
        ErrorKind::Command(command) => Some(command.code),
        ErrorKind::Write(WriteFailure::WriteError(write)) => Some(write.code),
        ErrorKind::Write(WriteFailure::WriteConcernError(concern)) => Some(concern.code),
        ErrorKind::InsertMany(many) => many.write_errors.as_ref()?.first().map(|write| write.code),
        ErrorKind::BulkWrite(bulk) => bulk.write_errors.values().next().map(|write| write.code),
        _ => None,
    }
}

/// Whether a statement that failed with this code may do its work when it is tried again: it met another that wrote the same document, or
/// that made it.
pub(crate) const fn may_pass(code: i32) -> bool {
    matches!(code, WRITE_CONFLICT | DUPLICATE_KEY)
}

/// Whether a command is known not to have reached a server, so that it did nothing.
pub(crate) fn is_unsent(error: &DriverError) -> bool {
    let kind = error.kind.as_ref();
    matches!(
        kind,
        ErrorKind::ServerSelection { .. }
            | ErrorKind::ConnectionPoolCleared { .. }
            | ErrorKind::DnsResolve { .. }
            | ErrorKind::Authentication { .. }
            | ErrorKind::Shutdown
    )
}

/// Whether the error is a duplicate key, in every shape the driver has. The call site says what that means. For a batch it is true
/// only if *every* write error is a duplicate key.
pub(crate) fn is_duplicate_key(error: &DriverError) -> bool {
    match error.kind.as_ref() {
        ErrorKind::InsertMany(many) => {
            many.write_concern_error.is_none()
                && many
                    .write_errors
                    .as_ref()
                    .is_some_and(|errors| !errors.is_empty() && errors.iter().all(|e| e.code == DUPLICATE_KEY))
        }
        ErrorKind::BulkWrite(bulk) => !bulk.write_errors.is_empty() && bulk.write_errors.values().all(|e| e.code == DUPLICATE_KEY),
        _ => code_of(error) == Some(DUPLICATE_KEY),
    }
}

/// The places, in an unordered insert of many, of the documents that were not inserted.
pub(crate) fn failed_indexes(error: &DriverError) -> std::collections::HashSet<usize> {
    match error.kind.as_ref() {
        ErrorKind::InsertMany(many) => many.write_errors.iter().flatten().map(|write| write.index).collect(),
        _ => std::collections::HashSet::new(),
    }
}
