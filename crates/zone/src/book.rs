//! The tokens with which nodes may join, and who joined, kept in the ledger so that a restart does not void them.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures::future::BoxFuture;
use link::enroll::token_refused;
use link::{Joiner, TokenBook, TokenRecord};
use model::exchange::Admission;
use model::{ChildId, Error, ErrorKind, Name, Result};
use tier::ledger::{Ledger, Write};
use work::SharedClock;

const TOKEN: &str = "token/";
pub(crate) const MEMBER: &str = "member/";
/// Tokens that wait to be used.
const TOKENS_MAX: usize = 10_000;

pub struct LedgerBook {
    ledger: Ledger,
    clock: SharedClock,
    /// One look and change at a time: a token is used once.
    turn: tokio::sync::Mutex<()>,
    /// Nodes whose certificate was seen to be of this zone, with the name under which each joined; it has no other.
    members: Mutex<HashMap<String, Option<Name>>>,
}

impl LedgerBook {
    pub fn open(ledger: Ledger, clock: SharedClock) -> Result<Self> {
        let members = ledger.list::<Option<Name>>(MEMBER)?.into_iter().collect();
        Ok(Self { ledger, clock, turn: tokio::sync::Mutex::new(()), members: Mutex::new(members) })
    }

    /// Whether this node joined here.
    pub fn member(&self, node: &ChildId) -> bool {
        self.members().contains_key(node.as_str())
    }

    /// A node speaks under the name that it joined with, so that it cannot take another's. The name of one that joined
    /// before names were kept is noted with its first report, which is then to be written.
    pub fn name_check(&self, node: &ChildId, name: &Name) -> Result<Option<Write>> {
        let mut members = self.members();
        match members.get(node.as_str()) {
            Some(Some(joined)) if joined == name => Ok(None),
            Some(Some(joined)) => {
                let text = format!("this node joined as '{joined}' and cannot speak as '{name}'");
                Err(Error::conflict(text).hint("set the name in its file back, or let it join anew"))
            }
            _ => {
                members.insert(node.as_str().to_owned(), Some(name.clone()));
                Ok(Some(Write::put(format!("{MEMBER}{node}"), name)))
            }
        }
    }

    /// Notes a node that joined before members were kept; says whether it was not known.
    pub fn member_note(&self, node: &ChildId) -> Option<Write> {
        let mut members = self.members();
        if members.contains_key(node.as_str()) {
            return None;
        }
        members.insert(node.as_str().to_owned(), None);
        Some(Write::put(format!("{MEMBER}{node}"), &None::<Name>))
    }

    fn members(&self) -> MutexGuard<'_, HashMap<String, Option<Name>>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn put(&self, record: TokenRecord) -> Result<()> {
        let _turn = self.turn.lock().await;
        let now = self.clock.now();
        let waiting = self.ledger.list::<TokenRecord>(TOKEN)?;
        let expired = waiting.iter().filter(|(_, token)| token.expires_at <= now);
        let mut writes: Vec<Write> =
            expired.map(|(digest, _)| Write::delete(format!("{TOKEN}{digest}"))).collect();
        if waiting.len() - writes.len() >= TOKENS_MAX {
            return Err(Error::new(ErrorKind::RateLimited, "too many tokens wait to be used"));
        }
        writes.push(Write::put(format!("{TOKEN}{}", record.digest), &record));
        self.ledger.commit_async(writes).await
    }

    /// The tokens that are not over.
    pub fn tokens(&self) -> Result<Vec<Admission>> {
        let now = self.clock.now();
        let kept = self.ledger.list::<TokenRecord>(TOKEN)?.into_iter().map(|(_, token)| token);
        let admission = |token: TokenRecord| Admission {
            digest: token.digest,
            expires_at: token.expires_at,
            used_by: token.used_by,
        };
        Ok(kept.filter(|token| now < token.expires_at).map(admission).collect())
    }

    /// Nobody joins with it any more; who did stays.
    pub async fn revoke(&self, digest: &str) -> Result<()> {
        let _turn = self.turn.lock().await;
        let key = format!("{TOKEN}{digest}");
        if self.ledger.get::<TokenRecord>(&key)?.is_none() {
            return Err(Error::not_found("token"));
        }
        self.ledger.commit_async(vec![Write::delete(key)]).await
    }

    /// The token of this digest, if it lets the joiner in.
    pub fn look(&self, digest: &str, joiner: &Joiner) -> Result<TokenRecord> {
        let record: TokenRecord = self.ledger.get(&format!("{TOKEN}{digest}"))?.ok_or_else(token_refused)?;
        record.check(joiner)?;
        Ok(record)
    }

    /// Lets somebody join whose token is good, unless `refuse` says why not; then the token stays good.
    pub async fn take(
        &self,
        digest: String,
        joiner: Joiner,
        refuse: impl FnOnce(&Joiner) -> Result<()> + Send,
    ) -> Result<()> {
        let _turn = self.turn.lock().await;
        let record = self.look(&digest, &joiner)?;
        refuse(&joiner)?;
        let used = Write::put(format!("{TOKEN}{digest}"), &record.used(&joiner));
        let (id, name) = (joiner.identity.id, joiner.name);
        let joined = Write::put(format!("{MEMBER}{id}"), &name);
        self.ledger.commit_async(vec![used, joined]).await?;
        self.members().insert(id, Some(name));
        Ok(())
    }
}

impl TokenBook for LedgerBook {
    fn add(&self, record: TokenRecord) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.put(record))
    }

    fn check(&self, digest: &str, joiner: Joiner) -> BoxFuture<'_, Result<()>> {
        let checked = self.look(digest, &joiner).map(drop);
        Box::pin(async { checked })
    }

    fn redeem(&self, digest: &str, joiner: Joiner) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.take(digest.to_owned(), joiner, |_| Ok(())))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use link::{Identity, Kind};
    use model::Timestamp;
    use work::ManualClock;

    fn record(digest: &str, expires_at: Timestamp) -> TokenRecord {
        TokenRecord {
            digest: digest.to_owned(),
            kind: Kind::Node,
            name: None,
            expires_at,
            hosts: Vec::new(),
            used_by: None,
        }
    }

    fn joiner(at: Timestamp) -> Joiner {
        joiner_of("n1", at)
    }

    fn joiner_of(id: &str, at: Timestamp) -> Joiner {
        let (identity, name) = (Identity::new(Kind::Node, id), id.parse().expect("a name"));
        Joiner { identity, name, hosts: Vec::new(), at }
    }

    #[tokio::test]
    async fn a_token_outlives_a_restart_and_is_used_once_and_in_time() {
        let dir = tempfile::tempdir().expect("temp dir");
        let path = dir.path().join("ledger");
        let clock = Arc::new(ManualClock::new(Timestamp(0)));
        let hour = Timestamp(0).plus_ms(3_600_000);
        {
            let book = LedgerBook::open(Ledger::open(&path).expect("opens"), clock.clone()).expect("reads");
            book.add(record("aa", hour)).await.expect("kept");
            book.add(record("bb", hour)).await.expect("kept");
        }
        let ledger = Ledger::open(&path).expect("opens again");
        let book = LedgerBook::open(ledger.clone(), clock.clone()).expect("reads");
        let (first, second) = tokio::join!(
            book.redeem("aa", joiner(Timestamp(1))),
            book.redeem("aa", joiner_of("n3", Timestamp(1)))
        );
        assert!(first.is_ok() && second.is_err(), "of two joiners one succeeds");
        book.redeem("aa", joiner(Timestamp(2))).await.expect("the same one may come again");
        assert!(book.redeem("aa", joiner(hour)).await.is_err(), "but not for ever");
        let again = LedgerBook::open(ledger.clone(), clock.clone()).expect("reads");
        assert!(book.member(&"n1".into()) && again.member(&"n1".into()), "who joined is remembered");
        assert!(!again.member(&"n2".into()));
        let name = |text: &str| text.parse::<Name>().expect("a name");
        assert_eq!(again.name_check(&"n1".into(), &name("n1")).expect("its own"), None);
        let error = again.name_check(&"n1".into(), &name("n2")).expect_err("another's");
        assert!(error.message.contains("joined as 'n1'"), "{error}");
        let write = again.name_check(&"old".into(), &name("n7")).expect("is noted").expect("to be kept");
        ledger.commit(vec![write]).expect("is kept");
        let later = LedgerBook::open(ledger.clone(), clock.clone()).expect("reads");
        assert!(later.name_check(&"old".into(), &name("n8")).is_err());
        let late = book.redeem("bb", joiner(hour)).await.expect_err("too late");
        assert_eq!(late.kind, ErrorKind::Unauthenticated);
        assert!(book.redeem("cc", joiner(Timestamp(1))).await.is_err(), "nobody made it");
        clock.set(hour);
        book.add(record("dd", hour.plus_ms(1))).await.expect("kept");
        let open = book.tokens().expect("lists");
        assert!(open.len() == 1 && open[0].digest == "dd" && open[0].used_by.is_none(), "{open:?}");
        let left = ledger.list::<TokenRecord>(TOKEN).expect("lists");
        assert_eq!(left.len(), 1, "the expired one is cleared away");
        book.revoke("dd").await.expect("is there");
        assert_eq!(book.revoke("dd").await.expect_err("only once").kind, ErrorKind::NotFound);
        assert!(book.redeem("dd", joiner(Timestamp(1))).await.is_err());
    }
}
