//! One run of the command line against one cloud: the client, the format, and
//! the small things every noun needs, such as reading whole lists and ids by
//! their beginning.

use std::future::Future;

use api::{Client, ListQuery, Page};
use serde::Serialize;

use crate::cli::Globals;
use crate::context::{Config, config_path, resolve};
use crate::failure::{Failure, Result};
use crate::output::Format;

/// Most things of one list that are fetched; a larger cloud is filtered first.
const ITEMS_MAX: usize = 100_000;
const PAGE_SIZE: usize = 500;

pub struct Session {
    pub client: Client,
    pub format: Format,
}

impl Session {
    /// Decides which cloud is meant and prepares to speak to it. Nothing is sent yet.
    pub fn open(globals: &Globals) -> Result<Self> {
        // A script whose variable is empty must not act as whoever is logged in here.
        if globals.token.as_deref() == Some("") {
            return Err(
                Failure::new("the token is empty").hint("give one with --token, or unset BANYAN_TOKEN")
            );
        }
        let config = Config::load(&config_path()?)?;
        let target = resolve(&config, &globals.overrides())?;
        let mut client = Client::new(&target.endpoint, target.token)?;
        if let Some(tenant) = target.tenant {
            client = client.with_tenant(tenant);
        }
        Ok(Self { client, format: globals.output })
    }
}

/// All pages of a list, up to [`ITEMS_MAX`] and to `limit` when given.
pub async fn all<T, F>(
    query: ListQuery,
    limit: Option<usize>,
    fetch: impl Fn(ListQuery) -> F,
) -> Result<Vec<T>>
where
    T: utoipa::ToSchema,
    F: Future<Output = model::Result<Page<T>>>,
{
    let most = limit.unwrap_or(ITEMS_MAX).min(ITEMS_MAX);
    let mut items = Vec::new();
    let mut after: Option<String> = None;
    loop {
        let mut part = query.clone().limit(PAGE_SIZE.min(most - items.len()).max(1));
        if let Some(cursor) = &after {
            part = part.after(cursor);
        }
        let page = fetch(part).await?;
        items.extend(page.items);
        after = page.next;
        if after.is_none() || items.len() >= most {
            items.truncate(most);
            return Ok(items);
        }
    }
}

/// Whether `text` could be the beginning of an id with this prefix, but not a whole one.
pub fn is_id_prefix(text: &str, prefix: &str) -> bool {
    const DIGITS: usize = 17;
    text.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('-')).is_some_and(|digits| {
        (1..DIGITS).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_hexdigit())
    })
}

/// The one thing whose name is `text` or whose id begins with it.
pub fn pick(what: &str, text: &str, things: impl Iterator<Item = (String, String)>) -> Result<String> {
    let mut matches: Vec<(String, String)> = Vec::new();
    for (id, name) in things {
        if name == text {
            return Ok(id);
        }
        if id.starts_with(text) {
            matches.push((id, name));
        }
    }
    match matches.len() {
        0 => Err(Failure::from(model::Error::not_found(format!("{what} '{text}'")))
            .hint(format!("see what there is with: banyan {what} list"))),
        1 => Ok(matches.remove(0).0),
        count => {
            let shown = matches.iter().take(5).map(|(id, name)| format!("{id} ({name})"));
            Err(Failure::new(format!("'{text}' is the beginning of {count} ids; write more of it"))
                .details(shown.collect()))
        }
    }
}

/// JSON of anything the client returns.
pub fn json<T: Serialize>(value: &T) -> serde_json::Value {
    serde_json::to_value(value).expect("answers of the API are plain data")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn things() -> impl Iterator<Item = (String, String)> {
        [("i-0a1", "web"), ("i-0a2", "db"), ("i-1b3", "i-0a")].into_iter().map(|(i, n)| (i.into(), n.into()))
    }

    #[test]
    fn an_id_may_be_shortened_while_it_is_unambiguous() {
        assert_eq!(pick("instance", "i-1", things()).unwrap(), "i-1b3");
        assert_eq!(pick("instance", "web", things()).unwrap(), "i-0a1");
        assert_eq!(pick("instance", "i-0a", things()).unwrap(), "i-1b3", "a name wins");
        let failure = pick("instance", "i-0", things()).unwrap_err();
        assert!(failure.message.contains("2 ids"), "{failure}");
        assert!(pick("instance", "i-9", things()).unwrap_err().hint.unwrap().contains("instance list"));
    }

    #[test]
    fn only_what_looks_like_a_part_of_an_id_is_looked_up() {
        assert!(is_id_prefix("i-0a", "i"));
        for other in ["i-", "web", "i-0123456789abcdef0", "i-xyz", "img-1"] {
            assert!(!is_id_prefix(other, "i"), "{other}");
        }
    }
}
