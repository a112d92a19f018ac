//! Handles: the unique names of accounts.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The most characters of a handle.
pub const MAX_LEN: usize = 30;

/// The unique name of an account: 1 to 30 of `a-z`, `0-9` and `_`, whatever case it was written in.
///
/// Only ASCII is taken, and only ASCII case is folded: a look-alike from another script is refused, never mapped to its double.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Handle(String);

/// A string that is no handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a handle is 1 to 30 of a-z, 0-9 and _")]
pub struct InvalidHandle;

impl Handle {
    /// Reads a handle in any case.
    ///
    /// # Errors
    /// [`InvalidHandle`] for anything but 1 to 30 ASCII letters, digits and underscores.
    pub fn parse(text: &str) -> Result<Self, InvalidHandle> {
        let fits = (1..=MAX_LEN).contains(&text.len());
        if fits && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            Ok(Self(text.to_ascii_lowercase()))
        } else {
            Err(InvalidHandle)
        }
    }

    /// A handle that the database holds, which was checked when it was stored.
    #[must_use]
    pub fn from_stored(text: String) -> Self {
        Self(text)
    }

    /// The handle in lower case.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
