//! Passwords: argon2id, computed off the async threads and a few at a time.

use std::sync::Arc;

use argon2::Argon2;
use argon2::password_hash::{PasswordHasher, PasswordVerifier, phc::PasswordHash};
use model::{Error, ErrorKind, Result};
use tokio::sync::Semaphore;
use zeroize::Zeroizing;

pub const PASSWORD_MIN: usize = 8;
pub const PASSWORD_MAX: usize = 256;
/// Each computation takes about 20 MiB and a core for some tens of milliseconds.
const AT_ONCE: usize = 2;
/// More callers than this are turned away instead of queued.
const WAITING_MAX: usize = 64;

pub fn password_validate(password: &str) -> Result<()> {
    if (PASSWORD_MIN..=PASSWORD_MAX).contains(&password.len()) {
        return Ok(());
    }
    Err(Error::invalid(format!("a password must have {PASSWORD_MIN} to {PASSWORD_MAX} bytes")).at("password"))
}

#[derive(Clone)]
pub struct Passwords {
    running: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
    /// What a wrong user name is compared with, so that it takes as long as a wrong password.
    decoy: Arc<str>,
}

impl Passwords {
    pub async fn new() -> Result<Self> {
        let mut passwords = Self {
            running: Arc::new(Semaphore::new(AT_ONCE)),
            waiting: Arc::new(Semaphore::new(WAITING_MAX)),
            decoy: "".into(),
        };
        passwords.decoy = passwords.hash(super::secret_new()).await?.into();
        Ok(passwords)
    }

    pub async fn hash(&self, password: String) -> Result<String> {
        let password = Zeroizing::new(password);
        self.compute(move || {
            let hash: PasswordHash = Argon2::default()
                .hash_password(password.as_bytes())
                .map_err(|error| Error::internal(format!("the password cannot be hashed: {error}")))?;
            Ok(hash.to_string())
        })
        .await
    }

    /// Whether the password fits; with no hash it takes the same time and says no.
    pub async fn verify(&self, password: String, hash: Option<String>) -> Result<bool> {
        let password = Zeroizing::new(password);
        let decoy = self.decoy.clone();
        self.compute(move || {
            let known = hash.is_some();
            let text = hash.unwrap_or_else(|| decoy.to_string());
            let parsed = PasswordHash::new(&text).map_err(|error| {
                Error::internal(format!("a stored password hash cannot be read: {error}"))
            })?;
            Ok(Argon2::default().verify_password(password.as_bytes(), &parsed).is_ok() && known)
        })
        .await
    }

    async fn compute<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let busy = || Error::new(ErrorKind::RateLimited, "too many passwords are being checked; try again");
        let _place = self.waiting.clone().try_acquire_owned().map_err(|_| busy())?;
        let permit = self.running.clone().acquire_owned().await.map_err(|_| busy())?;
        tokio::task::spawn_blocking(move || {
            let _permit = permit;
            work()
        })
        .await
        .map_err(|error| Error::internal("the password computation ended early").because(error))?
    }
}
