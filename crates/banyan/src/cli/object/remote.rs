//! The store as the command line speaks to it.

use std::fmt;
use std::ops::Deref;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::S3Session;
use object::client::{Client, Credentials, DELETE_MAX};

use crate::failure::{Failure, Result};
use crate::session::Session;
use crate::stop::Stop;

/// Seconds for which the credentials of a link outlive it, should the clocks be apart.
const LINK_SPARE: u64 = 15 * 60;
/// How long an interrupted command takes to give up what it has begun.
const GIVE_UP_WAIT: Duration = Duration::from_secs(5);
/// What a shell says of a command that Ctrl-C has ended.
const EXIT_INTERRUPTED: u8 = 130;

/// A client with credentials of its own that the cloud gives to whoever is logged in.
pub async fn s3(session: &Session) -> Result<Client> {
    let given = session.client.s3_session().await?;
    let endpoint = given.endpoint.clone();
    client(given, &endpoint)
}

/// One whose credentials live as long as a link that is signed with them.
pub async fn s3_for_link(session: &Session, lasts: Duration, inside: bool) -> Result<Client> {
    let given = session.client.s3_session_for(lasts.as_secs() + LINK_SPARE).await?;
    let endpoint = if inside { endpoint_inside(&given)? } else { given.endpoint.clone() };
    client(given, &endpoint)
}

/// Where instances on the store's own machine reach it.
pub fn endpoint_inside(given: &S3Session) -> Result<String> {
    given.endpoint_inside.clone().ok_or_else(|| {
        Failure::new("the store listens on no address of a bridge of instances")
            .hint("instances reach it where others do: 'banyan bucket endpoint'")
    })
}

fn client(given: S3Session, endpoint: &str) -> Result<Client> {
    let credentials = Credentials {
        access_key_id: given.access_key_id,
        secret_access_key: given.secret_access_key.into(),
        session_token: Some(given.session_token),
    };
    Ok(Client::new(endpoint, &given.region, credentials)?)
}

/// `BUCKET/KEY`, with or without `s3://` before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub bucket: String,
    pub key: String,
}

impl Place {
    pub fn parse(text: &str) -> Result<Self, String> {
        let rest = text.strip_prefix("s3://").unwrap_or(text);
        let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
        if bucket.is_empty() {
            return Err("expected BUCKET/KEY, such as photos/2026/cat.jpg".into());
        }
        Ok(Self { bucket: bucket.to_owned(), key: key.to_owned() })
    }

    /// For commands about one object.
    pub fn object(self) -> Result<Self> {
        if self.key.is_empty() {
            return Err(Failure::new(format!("'{}' names a bucket, not an object", self.bucket))
                .hint(format!("name the object too, as {}/KEY", self.bucket)));
        }
        Ok(self)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", shown(&format!("{}/{}", self.bucket, self.key)))
    }
}

/// A name as people see it: keys may hold what would move the cursor of a terminal, or more.
pub fn shown(name: &str) -> String {
    let mut shown = String::with_capacity(name.len());
    for letter in name.chars() {
        match letter.is_control() {
            true => shown.extend(letter.escape_default()),
            false => shown.push(letter),
        }
    }
    shown
}

/// A store, and the uploads in parts that were begun there and have not ended.
pub struct Transfers {
    client: Client,
    open: Mutex<Vec<(Place, String)>>,
}

impl Deref for Transfers {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl Transfers {
    pub fn new(client: Client) -> Self {
        Self { client, open: Mutex::default() }
    }

    fn open(&self) -> MutexGuard<'_, Vec<(Place, String)>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins an upload in parts; answers its id.
    pub async fn upload_begin(&self, at: &Place, headers: Vec<(String, String)>) -> Result<String> {
        let upload = self.client.upload_start(&at.bucket, &at.key, headers).await?;
        self.open().push((at.clone(), upload.clone()));
        Ok(upload)
    }

    /// Ends an upload: whole, or if anything went wrong without a trace.
    pub async fn upload_end(&self, at: &Place, upload: &str, sent: Result<Vec<String>>) -> Result<()> {
        let done = match sent {
            Ok(etags) => {
                let done = self.client.upload_complete(&at.bucket, &at.key, upload, &etags).await;
                done.map_err(Failure::from)
            }
            Err(error) => Err(error),
        };
        if done.is_err() {
            // What was sent would be kept until somebody ends the upload.
            let _ = self.client.upload_abort(&at.bucket, &at.key, upload).await;
        }
        self.open().retain(|(_, open)| open != upload);
        done
    }

    /// Does the work, unless the command is interrupted: then what it has begun in the store is given up.
    pub async fn run<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let mut stop = Stop::new()?;
        tokio::select! {
            done = work => return done,
            () = stop.wait() => {}
        }
        let open = std::mem::take(&mut *self.open());
        let giving_up = async {
            for (at, upload) in &open {
                let _ = self.client.upload_abort(&at.bucket, &at.key, upload).await;
            }
        };
        let _ = tokio::time::timeout(GIVE_UP_WAIT, giving_up).await;
        Err(Failure { code: EXIT_INTERRUPTED, ..Failure::new("interrupted") })
    }
}

/// An object in a listing.
#[derive(Debug, Clone, serde::Serialize)]
pub struct Entry {
    pub key: String,
    pub size: u64,
    pub modified: Option<String>,
    pub etag: Option<String>,
}

/// All names below a prefix, page after page; with a delimiter also the folders.
pub async fn walk(
    s3: &Client,
    bucket: &str,
    prefix: &str,
    delimiter: Option<&str>,
    mut each: impl FnMut(Found) -> Result<()>,
) -> Result<()> {
    let mut after: Option<String> = None;
    loop {
        let page = s3.list(bucket, prefix, delimiter, after.as_deref()).await?;
        for folder in page.folders {
            folder.prefix.map_or(Ok(()), |prefix| each(Found::Folder(prefix)))?;
        }
        for object in page.objects {
            let modified = object.last_modified.as_ref().map(|time| {
                let mut text = Vec::new();
                let _ = time.format(object::client::DATE_TIME, &mut text);
                String::from_utf8_lossy(&text).into_owned()
            });
            let size = object.size.and_then(|size| u64::try_from(size).ok()).unwrap_or(0);
            let etag = object.e_tag.map(|etag| etag.value().to_owned());
            each(Found::Object(Entry { key: object.key.unwrap_or_default(), size, modified, etag }))?;
        }
        after = page.next;
        if after.is_none() {
            return Ok(());
        }
    }
}

pub enum Found {
    Folder(String),
    Object(Entry),
}

/// Deletes every version of every object; answers how many.
pub async fn empty(s3: &Client, bucket: &str, mut said: impl FnMut(u64)) -> Result<u64> {
    let mut count = 0;
    loop {
        let page = s3.versions(bucket).await?;
        let versions = page.versions.into_iter().map(|version| (version.key, version.version_id));
        let markers = page.markers.into_iter().map(|marker| (marker.key, marker.version_id));
        let found: Vec<_> = versions.chain(markers).collect();
        if found.is_empty() {
            return Ok(count);
        }
        let found: Vec<(String, Option<String>)> =
            found.into_iter().map(|(key, version)| (key.unwrap_or_default(), version)).collect();
        for part in found.chunks(DELETE_MAX) {
            s3.delete_many(bucket, part).await?;
            count += part.len() as u64;
            said(count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_name_bucket_and_key() {
        let place = |bucket: &str, key: &str| Place { bucket: bucket.into(), key: key.into() };
        assert_eq!(Place::parse("b/k/l").expect("fine"), place("b", "k/l"));
        assert_eq!(Place::parse("s3://b/k").expect("fine"), place("b", "k"));
        assert_eq!(Place::parse("b").expect("fine"), place("b", ""));
        assert!(Place::parse("s3:///k").is_err());
        assert!(Place::parse("").is_err());
    }

    #[test]
    fn keys_do_not_reach_the_terminal_as_they_are() {
        let place = Place { bucket: "b".into(), key: "a\u{1b}[2Jé\r\u{9b}".into() };
        assert_eq!(place.to_string(), "b/a\\u{1b}[2Jé\\r\\u{9b}");
    }
}
