//! Where a case opens its store.

use std::sync::Arc;

use store::testing::Postgres;
use store::{Options, Store};
use tempfile::TempDir;
use tokio::sync::OnceCell;

/// One engine with an empty database.
pub struct Place {
    url: String,
    _directory: Option<TempDir>,
    memory: Option<OnceCell<Store>>,
}

impl Place {
    pub fn memory() -> Self {
        Self { url: "memory:".to_owned(), _directory: None, memory: Some(OnceCell::new()) }
    }

    pub fn sqlite() -> Self {
        let directory = tempfile::tempdir().unwrap();
        // A path that would break a URL must work too.
        let url = format!("sqlite:{}/a store? 100%.db", directory.path().display());
        Self { url, _directory: Some(directory), memory: None }
    }

    pub fn postgres(server: &Arc<Postgres>) -> Self {
        Self { url: server.database().unwrap(), _directory: None, memory: None }
    }

    pub fn is_memory(&self) -> bool {
        self.memory.is_some()
    }

    pub async fn open(&self) -> Store {
        self.open_with(Options::default()).await
    }

    pub async fn open_with(&self, options: Options) -> Store {
        let open = || async { Store::open_with(&self.url, options).await.unwrap() };
        match &self.memory {
            Some(memory) => memory.get_or_init(open).await.clone(),
            None => open().await,
        }
    }

    /// Closes and opens again, as a restart does.
    pub async fn reopen(&self, store: Store) -> Store {
        store.close().await;
        self.open().await
    }
}
