//! E-mail addresses: only what is needed to tell accounts apart.

use std::fmt;

/// An address, trimmed and in lower case. Printed nowhere: its `Debug` hides it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Email(String);

/// A string that is no e-mail address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not an e-mail address")]
pub struct InvalidEmail;

impl Email {
    /// Reads an address in any case.
    ///
    /// # Errors
    /// [`InvalidEmail`] where there is not exactly one `@` between two parts without spaces or controls, or past 254 bytes.
    pub fn parse(text: &str) -> Result<Self, InvalidEmail> {
        let text = text.trim();
        let (local, host) = text.split_once('@').ok_or(InvalidEmail)?;
        let plain = |part: &str| !part.is_empty() && !part.chars().any(|c| c.is_whitespace() || c.is_control() || c == '@');
        if plain(local) && plain(host) && text.len() <= 254 { Ok(Self(text.to_lowercase())) } else { Err(InvalidEmail) }
    }

    /// The address.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Email {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Email(…)")
    }
}
