//! Identity: who calls, and how that is proved.
//!
//! Passwords are argon2id hashes; sessions and API tokens are random secrets kept as SHA-256;
//! the secrets of access keys are sealed under the master key, because signatures need them in clear.

mod password;
mod principal;
mod rate;
mod secret;

pub use password::{PASSWORD_MAX, PASSWORD_MIN, Passwords, password_validate};
pub use principal::{Principal, Proof, authenticate, stands};
pub use rate::RateLimit;
pub use secret::{MasterKey, hash_hex, secret_new, session_secret, token_secret};
