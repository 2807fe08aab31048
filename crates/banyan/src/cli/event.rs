//! `banyan event list [-f]`: the history, oldest first as people read it.

use std::time::Duration;

use api::ListQuery;
use clap::{Args, Subcommand};
use model::{ErrorKind, Event, EventId};

use crate::failure::Result;
use crate::output::table::Column;
use crate::output::{self, Format, data, note};
use crate::session::{Session, all};

const LIMIT_DEFAULT: usize = 50;
/// How many events are looked through for those of one kind.
const SEARCH_MAX: usize = 5_000;
const FOLLOW_EVERY: Duration = Duration::from_secs(1);
/// How far back a follower looks; more events than this between two looks are not shown.
const FOLLOW_WINDOW: usize = 500;

#[derive(Args)]
#[command(after_help = "Examples:\n  banyan event list --subject web\n  banyan event list -f -o json")]
pub struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// The latest events.
    #[command(visible_alias = "ls")]
    List(ListArguments),
}

#[derive(Args)]
struct ListArguments {
    /// Only of this thing: the name of an instance, or KIND/NAME such as image/app.
    #[arg(long, value_name = "NAME")]
    subject: Option<String>,
    /// Only what begins with this, such as instance.create or user.
    #[arg(long, value_name = "WHAT")]
    what: Option<String>,
    /// Show at most so many.
    #[arg(long, value_name = "COUNT", default_value_t = LIMIT_DEFAULT)]
    limit: usize,
    /// Go on as more happens, until you press Ctrl-C.
    #[arg(short, long)]
    follow: bool,
}

fn subject(event: &Event) -> String {
    format!("{} {}", event.subject_kind, event.subject_name)
}

const COLUMNS: [Column<Event>; 7] = [
    Column::new("TIME", |e| e.at.to_string()),
    Column::new("WHO", |e| e.who.clone()),
    Column::new("WHAT", |e| e.what.clone()),
    Column::new("SUBJECT", subject),
    Column::new("MESSAGE", |e| e.message.clone()),
    Column::wide("FROM", |e| e.from.clone().unwrap_or_default()),
    Column::wide("SUBJECT ID", |e| e.subject_id.clone()),
];

pub async fn run(session: &Session, args: Arguments) -> Result<()> {
    let Verb::List(args) = args.verb;
    let mut query = ListQuery::new();
    if let Some(subject) = &args.subject {
        let field = if subject.contains('/') { "subject" } else { "instance" };
        query = query.with(field, subject);
    }
    let what = args.what.unwrap_or_default();
    let mut events = newest(session, &query, if what.is_empty() { args.limit } else { SEARCH_MAX }).await?;
    events.retain(|event| event.what.starts_with(&what));
    events.truncate(args.limit);
    events.reverse();
    if !args.follow {
        return output::list(session.format, &events, &COLUMNS);
    }
    follow(session, query, &what, events).await
}

/// Newest first.
async fn newest(session: &Session, query: &ListQuery, limit: usize) -> Result<Vec<Event>> {
    all(query.clone(), Some(limit), |query| async move { session.client.event_list(&query).await }).await
}

async fn follow(session: &Session, query: ListQuery, what: &str, mut events: Vec<Event>) -> Result<()> {
    let mut last: Option<EventId> = None;
    loop {
        for event in events.iter().filter(|event| event.what.starts_with(what)) {
            data(&line(session.format, event))?;
        }
        last = events.last().map(|event| event.id.clone()).or(last);
        tokio::time::sleep(FOLLOW_EVERY).await;
        let latest = match session.client.event_list(&query.clone().limit(FOLLOW_WINDOW)).await {
            Ok(page) => page.items,
            Err(error) if error.kind == ErrorKind::Unavailable => {
                note(format!("{}; trying again", error.message));
                Vec::new()
            }
            Err(error) => return Err(error.into()),
        };
        events = latest.into_iter().take_while(|event| Some(&event.id) != last.as_ref()).collect();
        events.reverse();
    }
}

/// One event on one line, in every format: a stream has no table and no closing bracket.
fn line(format: Format, event: &Event) -> String {
    match format {
        Format::Json | Format::Yaml => serde_json::to_string(event).expect("an event is plain data") + "\n",
        Format::Name => format!("{}\n", event.id),
        Format::Table | Format::Wide => {
            let text =
                format!("{}  {}  {}  {}  {}", event.at, event.who, event.what, subject(event), event.message);
            text.replace(char::is_control, " ").trim_end().to_owned() + "\n"
        }
    }
}
