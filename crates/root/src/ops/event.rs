//! The history as users read it: newest first, page by page.

use api::Page;
use model::{Error, Event, Result};

use super::page::Query;
use crate::cloud::{Caller, Cloud};
use crate::history;

pub const FILTERS: &[&str] = &["subject", "instance"];

/// `subject=KIND/NAME`, or `instance=NAME` for short. Operators may read every tenant's.
pub async fn list(cloud: &Cloud, caller: &Caller, query: &Query) -> Result<Page<Event>> {
    let subject = match (query.get("subject"), query.get("instance")) {
        (Some(subject), _) if !subject.contains('/') => {
            return Err(Error::invalid("subject must be KIND/NAME, such as instance/web").at("subject"));
        }
        (Some(subject), _) => Some(subject.to_owned()),
        (None, Some(name)) => Some(history::subject("instance", name)),
        (None, None) => None,
    };
    let before = match &query.after {
        Some(text) => Some(text.parse::<i64>().map_err(|_| {
            Error::invalid("after is not a cursor of this list; give the 'next' of the page before")
                .at("after")
        })?),
        None => None,
    };
    let tenant = (!caller.all_tenants).then_some(&caller.tenant);
    let (items, next) = history::list(&cloud.state, tenant, subject, before, query.limit).await?;
    Ok(Page { items, next: next.map(|seq| seq.to_string()), seq: cloud.state.snapshot().seq })
}
