//! Passwords: which are strong enough; sessions as other layers see them, and how long the proofs of a login live.
//!
//! A password is judged by its length and by an estimate of how many guesses an informed attacker needs (zxcvbn), never by which
//! kinds of characters it has: composition rules make passwords worse (NIST SP 800-63B, 3.1.1.2).

use std::time::Duration;

use unicode_normalization::UnicodeNormalization as _;

use crate::{SessionId, Timestamp};

/// The fewest characters of a password.
pub const MIN_CHARS: usize = 10;
/// The most characters of a password: enough for any phrase, and a bound on what one request makes us normalise and hash.
pub const MAX_CHARS: usize = 256;
/// How many guesses must be needed at least. Below a million a password does not even stand a throttled attack over the network
/// (score 1 of zxcvbn), which is where the passwords that everybody uses are.
const MIN_GUESSES: u64 = 1_000_000;

/// How long an access token is good. Short, since within that time only the memory of revoked sessions stands against a stolen one.
pub const ACCESS_TOKEN_LIVES: Duration = Duration::from_mins(10);
/// How long a session lasts after its last refresh.
pub const SESSION_LIVES: Duration = Duration::from_hours(30 * 24);

/// How many logins may fail for one identifier within [`ATTEMPTS_WINDOW`] before the next is refused unread.
pub const MAX_FAILED_ATTEMPTS: i64 = 10;
/// The time over which failed logins are counted, from the first of them.
pub const ATTEMPTS_WINDOW: Duration = Duration::from_mins(15);

/// A login on one device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    /// Its id, which access tokens carry.
    pub id: SessionId,
    /// When it began.
    pub created_at: Timestamp,
    /// When its tokens were last renewed.
    pub last_used_at: Timestamp,
    /// What the client called itself at the login; may be empty.
    pub user_agent: String,
}

/// The longest name of a client that is kept, in characters.
const MAX_USER_AGENT: usize = 300;

/// The name of a client as it is kept: without controls, and cut to what the list of sessions can show.
#[must_use]
pub fn user_agent(header: &str) -> String {
    header.chars().filter(|c| !c.is_control()).take(MAX_USER_AGENT).collect::<String>().trim().to_owned()
}

/// Why a password is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PasswordFault {
    /// Fewer than [`MIN_CHARS`] characters.
    #[error("a password has at least {MIN_CHARS} characters")]
    TooShort,
    /// More than [`MAX_CHARS`] characters.
    #[error("a password has at most {MAX_CHARS} characters")]
    TooLong,
    /// Among the first that anybody would try: a common password, a pattern on the keyboard, or made of what is known about the account.
    #[error("this password is among the first that an attacker would try")]
    TooCommon,
}

impl PasswordFault {
    /// The stable name of the fault.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::TooShort => "too_short",
            Self::TooLong => "too_long",
            Self::TooCommon => "too_common",
        }
    }
}

/// The form in which a password is judged, hashed and compared: NFC, so that the same keys give the same password on machines that
/// compose letters differently (RFC 8265, 4.2.2).
#[must_use]
pub fn normalised(password: &str) -> String {
    password.nfc().collect()
}

/// Whether a password in [`normalised`] form may protect an account of which an attacker knows the `known` words (handle, e-mail
/// address, name).
///
/// Takes up to some tens of milliseconds for a long password: keep it off the threads that serve requests.
///
/// # Errors
/// The first fault found.
pub fn check_password(password: &str, known: &[&str]) -> Result<(), PasswordFault> {
    let chars = password.chars().count();
    if chars < MIN_CHARS {
        return Err(PasswordFault::TooShort);
    }
    if chars > MAX_CHARS {
        return Err(PasswordFault::TooLong);
    }
    // It looks at the first 100 characters only, which bounds its own cost.
    if zxcvbn::zxcvbn(password, known).guesses() < MIN_GUESSES { Err(PasswordFault::TooCommon) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commonest_passwords_are_refused() {
        for password in ["1234567890", "qwertyuiop", "password123", "aaaaaaaaaaaa", "passwordpassword", "iloveyou12", "1q2w3e4r5t"]
        {
            assert_eq!(check_password(password, &[]), Err(PasswordFault::TooCommon), "{password}");
        }
    }

    #[test]
    fn a_phrase_or_ten_random_characters_are_enough() {
        for password in ["correct horse 9 staple", "zq7-Vw!k2e", "another horse 8 staple", "дом на холме у реки"] {
            assert_eq!(check_password(password, &[]), Ok(()), "{password}");
        }
    }

    #[test]
    fn what_is_known_about_the_account_protects_nothing() {
        assert_eq!(check_password("marmaladefox", &["marmaladefox"]), Err(PasswordFault::TooCommon));
        assert_eq!(
            check_password("fox.marmalade@example.org", &["marmaladefox", "fox.marmalade@example.org"]),
            Err(PasswordFault::TooCommon)
        );
    }

    #[test]
    fn lengths_are_counted_in_characters() {
        assert_eq!(check_password("", &[]), Err(PasswordFault::TooShort));
        assert_eq!(check_password("zq7-Vw!k2", &[]), Err(PasswordFault::TooShort));
        let longest = "zq7-Vw!k2é".repeat(26);
        assert_eq!(check_password(&longest[..], &[]), Err(PasswordFault::TooLong));
        let fits: String = longest.chars().take(MAX_CHARS).collect();
        assert_eq!(check_password(&fits, &[]), Ok(()));
    }

    #[test]
    fn the_name_of_a_client_is_cleaned_and_cut() {
        assert_eq!(user_agent(" Fox\t1.0\u{0} "), "Fox1.0");
        assert_eq!(user_agent(&"é".repeat(400)).chars().count(), 300);
    }

    #[test]
    fn a_letter_composed_in_two_ways_is_one_password() {
        assert_eq!(normalised("cafe\u{301}"), normalised("café"));
    }
}
