//! Hashing passwords: Argon2id, off the threads that serve requests, and never more at a time than there are cores.

use std::{num::NonZeroUsize, sync::Arc, thread::available_parallelism};

use argon2::{
    ARGON2ID_IDENT, Algorithm, Argon2, Params, PasswordHash, PasswordHasher as _, PasswordVerifier as _, Version,
    password_hash::Error as HashError,
};
use rookery_domain::credentials::{self, PasswordFault};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{config::PasswordHashCost, error::Problem};

/// 19 MiB, two passes, one lane: the least that OWASP recommends for Argon2id (Password Storage Cheat Sheet), some 20 ms.
const DEFAULT: (u32, u32, u32) = (19 * 1024, 2, 1);
/// The least that the algorithm allows.
const TEST: (u32, u32, u32) = (Params::MIN_M_COST, Params::MIN_T_COST, Params::MIN_P_COST);

/// Hashes passwords and compares them with hashes.
#[derive(Debug)]
pub struct Passwords {
    hasher: Hasher,
    /// Each hash takes 19 MiB and a whole core: more at a time than cores would only take memory.
    running: Arc<Semaphore>,
}

#[derive(Debug, Clone)]
struct Hasher {
    argon2: Argon2<'static>,
    /// Compared with where there is no account, so that this takes as long as a wrong password.
    dummy: Arc<str>,
    /// Whether hashes that are weaker than ours are made anew.
    upgrades: bool,
}

/// What a comparison says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Compared {
    /// It is another password, or there is none to compare with.
    Different,
    /// It is the password.
    Same {
        /// Its hash at the cost of today, where the one compared with is weaker.
        stronger: Option<String>,
    },
}

impl Passwords {
    /// Hashes at this cost.
    ///
    /// # Errors
    /// The library refuses the parameters, or the system has no randomness.
    pub fn new(cost: PasswordHashCost) -> anyhow::Result<Self> {
        let (m, t, p) = match cost {
            PasswordHashCost::Default => DEFAULT,
            PasswordHashCost::Test => TEST,
        };
        let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, Params::new(m, t, p, None)?);
        let dummy = argon2.hash_password(b"nobody has this password")?.to_string().into();
        let hasher = Hasher { argon2, dummy, upgrades: cost == PasswordHashCost::Default };
        let cores = available_parallelism().map_or(1, NonZeroUsize::get);
        Ok(Self { hasher, running: Arc::new(Semaphore::new(cores)) })
    }

    /// Waits for a core. Whatever must not be overtaken by other attempts, such as counting them, is done within the turn.
    ///
    /// # Errors
    /// None, as long as nobody closes the queue.
    pub async fn turn(&self) -> Result<Turn, Problem> {
        let permit = self.running.clone().acquire_owned().await.map_err(Problem::internal)?;
        Ok(Turn { hasher: self.hasher.clone(), permit: Arc::new(permit) })
    }
}

/// The use of a core for one password.
#[derive(Debug)]
pub struct Turn {
    hasher: Hasher,
    permit: Arc<OwnedSemaphorePermit>,
}

impl Turn {
    /// Whether a new password may protect an account of which these words are known.
    ///
    /// # Errors
    /// Faults alone: what is wrong with the password is a value.
    pub async fn check(&self, password: &SecretString, known: Vec<String>) -> Result<Option<PasswordFault>, Problem> {
        self.off_thread(password, move |_, password| {
            let known: Vec<_> = known.iter().map(String::as_str).collect();
            credentials::check_password(password, &known).err()
        })
        .await
    }

    /// The hash of a password in PHC form, with a new salt.
    ///
    /// # Errors
    /// Faults alone.
    pub async fn hash(&self, password: &SecretString) -> Result<String, Problem> {
        self.off_thread(password, Hasher::hash).await?.map_err(Problem::internal)
    }

    /// Compares a password with a hash in PHC form, in constant time. Without a hash it takes as long.
    ///
    /// # Errors
    /// A hash that is none.
    pub async fn compare(&self, password: &SecretString, hash: Option<&str>) -> Result<Compared, Problem> {
        let hash = hash.map(str::to_owned);
        let compared = self.off_thread(password, move |hasher, password| hasher.compare(password, hash.as_deref())).await?;
        compared.map_err(Problem::internal)
    }

    async fn off_thread<T: Send + 'static>(
        &self,
        password: &SecretString,
        work: impl FnOnce(&Hasher, &str) -> T + Send + 'static,
    ) -> Result<T, Problem> {
        let (hasher, permit, password) = (self.hasher.clone(), self.permit.clone(), password.clone());
        let done = tokio::task::spawn_blocking(move || {
            // Held to the end of the work, also where the request is given up meanwhile.
            let _permit = permit;
            let normalised = SecretString::from(credentials::normalised(password.expose_secret()));
            work(&hasher, normalised.expose_secret())
        });
        done.await.map_err(Problem::internal)
    }
}

impl Hasher {
    fn hash(&self, password: &str) -> Result<String, HashError> {
        Ok(self.argon2.hash_password(password.as_bytes())?.to_string())
    }

    fn compare(&self, password: &str, hash: Option<&str>) -> Result<Compared, HashError> {
        let parsed = PasswordHash::new(hash.unwrap_or(&self.dummy))?;
        match self.argon2.verify_password(password.as_bytes(), &parsed) {
            Ok(()) if hash.is_some() => {
                let stronger = if self.upgrades && self.is_weaker(&parsed)? { Some(self.hash(password)?) } else { None };
                Ok(Compared::Same { stronger })
            }
            Ok(()) | Err(HashError::PasswordInvalid) => Ok(Compared::Different),
            Err(fault) => Err(fault),
        }
    }

    fn is_weaker(&self, hash: &PasswordHash) -> Result<bool, HashError> {
        let (theirs, ours) = (Params::try_from(hash)?, self.argon2.params());
        Ok(hash.algorithm != ARGON2ID_IDENT || theirs.m_cost() < ours.m_cost() || theirs.t_cost() < ours.t_cost())
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test that fails to unwrap has failed")]

    use super::*;

    fn secret(password: &str) -> SecretString {
        SecretString::from(password)
    }

    #[tokio::test]
    async fn a_password_is_hashed_with_the_recommended_parameters() {
        let turn = Passwords::new(PasswordHashCost::Default).unwrap().turn().await.unwrap();
        let hash = turn.hash(&secret("correct horse 9 staple")).await.unwrap();
        assert!(hash.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{hash}");
        let same = Compared::Same { stronger: None };
        assert_eq!(turn.compare(&secret("correct horse 9 staple"), Some(&hash)).await.unwrap(), same);
        assert_eq!(turn.compare(&secret("correct horse 9 stable"), Some(&hash)).await.unwrap(), Compared::Different);
    }

    #[tokio::test]
    async fn a_weak_hash_is_made_anew_at_the_next_login_but_not_in_tests() {
        let (cheap, dear) = (Passwords::new(PasswordHashCost::Test).unwrap(), Passwords::new(PasswordHashCost::Default).unwrap());
        let (cheap, dear) = (cheap.turn().await.unwrap(), dear.turn().await.unwrap());
        let password = secret("correct horse 9 staple");
        let weak = cheap.hash(&password).await.unwrap();
        let Compared::Same { stronger: Some(strong) } = dear.compare(&password, Some(&weak)).await.unwrap() else {
            panic!("the hash was weak")
        };
        assert_eq!(dear.compare(&password, Some(&strong)).await.unwrap(), Compared::Same { stronger: None });
        assert_eq!(cheap.compare(&password, Some(&weak)).await.unwrap(), Compared::Same { stronger: None });
    }

    #[tokio::test]
    async fn nobody_has_the_password_of_no_account() {
        let turn = Passwords::new(PasswordHashCost::Test).unwrap().turn().await.unwrap();
        for password in ["nobody has this password", "", "correct horse 9 staple"] {
            assert_eq!(turn.compare(&secret(password), None).await.unwrap(), Compared::Different);
        }
    }

    #[tokio::test]
    async fn a_letter_composed_in_two_ways_is_one_password() {
        let turn = Passwords::new(PasswordHashCost::Test).unwrap().turn().await.unwrap();
        let hash = turn.hash(&secret("crème brûlée 9")).await.unwrap();
        let decomposed = secret("cre\u{300}me bru\u{302}le\u{301}e 9");
        assert_eq!(turn.compare(&decomposed, Some(&hash)).await.unwrap(), Compared::Same { stronger: None });
    }
}
