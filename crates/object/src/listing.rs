//! Pages of names in order of their bytes, by prefix, rolled up by a delimiter.
//!
//! A [`Source`] gives entries in order and can leap; [`walk`] makes a page of
//! them. A folder costs one leap, however much it holds.

use std::collections::VecDeque;
use std::ops::Range;

use crate::engine::{EngineError, View};
use crate::fault::Result;
use crate::record::key::{self, Space};
use crate::record::version::Head;
use crate::record::{Upload, version::version_seq};
use crate::version;

/// The most entries of a page.
pub const PAGE_MAX: usize = 1000;
/// The most delete markers that one page passes over; it then ends early.
pub const SKIPS_MAX: usize = 100_000;
/// How many entries are read ahead at first; each further read takes four times as many.
const AHEAD: usize = 8;

/// What a page is to hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Query {
    pub prefix: String,
    /// `None` or empty rolls nothing up.
    pub delimiter: Option<String>,
    pub after: After,
    pub limit: usize,
}

/// Where a page begins.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum After {
    #[default]
    Nothing,
    /// Behind all of a key.
    Key(String),
    /// Behind everything that begins so.
    Prefix(String),
    /// Behind one of the entries of a key: the id of a version or an upload.
    Within(String, String),
}

impl After {
    /// A marker as clients give it: one that a page ended on as a common prefix leaps over it.
    pub fn marker(marker: &str, prefix: &str, delimiter: Option<&str>) -> Self {
        match common_prefix(marker, prefix, delimiter) {
            Some(common) if common == marker => Self::Prefix(marker.into()),
            _ if marker.is_empty() => Self::Nothing,
            _ => Self::Key(marker.into()),
        }
    }

    /// The least name that may follow, as bytes. Names hold no NUL, so a one ends those of a key.
    fn bound(&self) -> Vec<u8> {
        match self {
            Self::Nothing => Vec::new(),
            Self::Key(key) => [key.as_bytes(), &[1]].concat(),
            Self::Prefix(prefix) => beyond(prefix),
            Self::Within(key, _) => key.as_bytes().to_vec(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry<T> {
    Item(String, T),
    Prefix(String),
}

impl<T> Entry<T> {
    pub fn name(&self) -> &str {
        match self {
            Self::Item(name, _) | Self::Prefix(name) => name,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T> {
    pub entries: Vec<Entry<T>>,
    /// Whether more may follow.
    pub more: bool,
    /// The name that a page ended at before it was full.
    pub cut: Option<String>,
}

impl<T> Page<T> {
    /// The name behind which the next page begins, if there is one.
    pub fn next(&self) -> Option<&str> {
        let last = self.entries.last().map(Entry::name);
        self.cut.as_deref().or(last).filter(|_| self.more)
    }
}

/// Entries in order.
pub trait Source {
    type Item;
    /// The name of the next entry.
    fn peek(&mut self) -> Result<Option<&str>>;
    fn next(&mut self) -> Result<Option<(String, Self::Item)>>;
    /// Leaps to the first name that is not less than `bound`.
    fn leap(&mut self, bound: &[u8]);
    /// The name that it gave up at, if it did.
    fn cut(&self) -> Option<String> {
        None
    }
}

/// Makes a page. The source stands where `query` begins.
pub fn walk<S: Source>(source: &mut S, query: &Query) -> Result<Page<S::Item>> {
    let mut page = Page { entries: Vec::new(), more: false, cut: None };
    if query.limit == 0 {
        return Ok(page);
    }
    while let Some(name) = source.peek()? {
        if page.entries.len() == query.limit {
            page.more = true;
            break;
        }
        if let Some(common) = common_prefix(name, &query.prefix, query.delimiter.as_deref()) {
            let common = common.to_owned();
            source.leap(&beyond(&common));
            page.entries.push(Entry::Prefix(common));
        } else if let Some((name, item)) = source.next()? {
            page.entries.push(Entry::Item(name, item));
        }
    }
    if !page.more {
        page.cut = source.cut();
        page.more = page.cut.is_some();
    }
    Ok(page)
}

/// The objects of a bucket: newest versions that are not delete markers.
pub fn objects(view: &View, bucket: u32, query: &Query) -> Result<Page<Head>> {
    objects_among(view, bucket, query, SKIPS_MAX)
}

/// The same, passing over so many delete markers at most.
pub fn objects_among(view: &View, bucket: u32, query: &Query, skips: usize) -> Result<Page<Head>> {
    let live = |key: &[u8], value: &[u8]| {
        if Head::is_marker(value)? { Some(None) } else { Some(Some((name(key)?, Head::decode(value)?))) }
    };
    let mut cursor = Cursor::new(view, Space::Current, bucket, query, live);
    cursor.skips = skips;
    walk(&mut cursor, query)
}

/// A version in a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    pub head: Head,
    pub latest: bool,
}

/// All versions of a bucket, newest first within a key.
pub fn versions(view: &View, bucket: u32, query: &Query) -> Result<Page<Listed>> {
    // Versions of the key that the last page ended within count if they are older than that one.
    let begin = match &query.after {
        After::Within(key, id) => {
            let seq = match version_seq(id) {
                Some(seq) => Some(seq),
                None => version::lookup(view, bucket, key, Some(id))?.map(|version| version.head.seq),
            };
            Some((key.clone(), seq.unwrap_or_default()))
        }
        _ => None,
    };
    let newest = |key: &[u8], value: &[u8]| {
        let (key, head) = (name(key)?, Head::decode(value)?);
        let seen = begin.as_ref().is_some_and(|(begin, seq)| *begin == key && head.seq >= *seq);
        Some((!seen).then_some((key, Listed { head, latest: true })))
    };
    let older = |key: &[u8], value: &[u8]| {
        let end = key.len().checked_sub(9)?;
        Some(Some((name(&key[..end])?, Listed { head: Head::decode(value)?, latest: false })))
    };
    let mut past = Cursor::new(view, Space::Past, bucket, query, older);
    if let Some((key, seq)) = &begin {
        past.rest.start = match seq.checked_sub(1) {
            Some(seq) => past.rest.start.max(key::past(bucket, key, seq)),
            None => past.rest.start.max(key::of_name(Space::Past, bucket, &After::Key(key.clone()).bound())),
        };
    }
    let mut both = Both { newest: Cursor::new(view, Space::Current, bucket, query, newest), past };
    walk(&mut both, query)
}

/// The open uploads of a bucket, oldest first within a key.
pub fn uploads(view: &View, bucket: u32, query: &Query) -> Result<Page<Upload>> {
    let open = |_: &[u8], value: &[u8]| {
        let upload = Upload::decode(value)?;
        Some(Some((upload.key.clone(), upload)))
    };
    let mut cursor = Cursor::new(view, Space::Upload, bucket, query, open);
    if let After::Within(key, id) = &query.after {
        let mut next = key::upload(bucket, key, id);
        next.push(0);
        cursor.rest.start = cursor.rest.start.max(next);
    }
    walk(&mut cursor, query)
}

/// Reads a space of the index in order, some entries ahead. `decode` answers `None` for what
/// cannot be read and `Some(None)` for what does not belong.
struct Cursor<'a, T, F> {
    view: &'a View,
    space: Space,
    bucket: u32,
    rest: Range<Vec<u8>>,
    ahead: VecDeque<(String, T)>,
    batch: usize,
    /// How many entries that do not belong may still be passed over.
    skips: usize,
    /// The last of them, if there were too many.
    cut: Option<String>,
    delimiter: Option<String>,
    decode: F,
}

impl<'a, T, F: Fn(&[u8], &[u8]) -> Option<Option<(String, T)>>> Cursor<'a, T, F> {
    fn new(view: &'a View, space: Space, bucket: u32, query: &Query, decode: F) -> Self {
        let mut rest = key::under(key::of_name(space, bucket, query.prefix.as_bytes()));
        let start = key::of_name(space, bucket, &query.after.bound());
        rest.start = rest.start.max(start);
        Self {
            view,
            space,
            bucket,
            rest,
            ahead: VecDeque::new(),
            batch: AHEAD,
            skips: usize::MAX,
            cut: None,
            delimiter: query.delimiter.clone().filter(|delimiter| !delimiter.is_empty()),
            decode,
        }
    }

    fn fill(&mut self) -> Result<()> {
        if !self.ahead.is_empty() || self.cut.is_some() || self.rest.start >= self.rest.end {
            return Ok(());
        }
        let (mut last, mut broken) = (None, false);
        let (ahead, decode, batch) = (&mut self.ahead, &self.decode, self.batch);
        let (skips, cut, delimiter) = (&mut self.skips, &mut self.cut, self.delimiter.as_deref());
        // A marker that ends in the delimiter would leap over all that begins so.
        let marks = |name: &String| delimiter.is_none_or(|delimiter| !name.ends_with(delimiter));
        self.view.scan(self.rest.clone(), |key, value| {
            match decode(key, value) {
                Some(Some(entry)) => ahead.push_back(entry),
                Some(None) if *skips > 0 => *skips -= 1,
                Some(None) => *cut = name(key).filter(marks),
                None => broken = true,
            }
            if ahead.len() >= batch || cut.is_some() {
                last = Some(key.to_vec());
            }
            last.is_none() && !broken
        })?;
        if broken {
            return Err(EngineError::Index("a record cannot be read".into()).into());
        }
        self.rest.start = last.map_or_else(
            || self.rest.end.clone(),
            |mut last| {
                last.push(0);
                last
            },
        );
        self.batch = (self.batch * 4).min(PAGE_MAX);
        Ok(())
    }
}

impl<T, F: Fn(&[u8], &[u8]) -> Option<Option<(String, T)>>> Source for Cursor<'_, T, F> {
    type Item = T;

    fn peek(&mut self) -> Result<Option<&str>> {
        self.fill()?;
        Ok(self.ahead.front().map(|(name, _)| name.as_str()))
    }

    fn next(&mut self) -> Result<Option<(String, T)>> {
        self.fill()?;
        Ok(self.ahead.pop_front())
    }

    fn leap(&mut self, bound: &[u8]) {
        while self.ahead.front().is_some_and(|(name, _)| name.as_bytes() < bound) {
            self.ahead.pop_front();
        }
        if self.ahead.is_empty() {
            let start = key::of_name(self.space, self.bucket, bound);
            if start > self.rest.start {
                self.rest.start = start;
                self.batch = AHEAD;
                // Where it gave up is leapt over.
                self.cut = None;
            }
        }
    }

    fn cut(&self) -> Option<String> {
        self.cut.clone().filter(|_| self.ahead.is_empty())
    }
}

/// The newest version of each key before its older ones.
struct Both<N, P> {
    newest: N,
    past: P,
}

impl<T, N: Source<Item = T>, P: Source<Item = T>> Both<N, P> {
    fn is_past(&mut self) -> Result<bool> {
        Ok(match (self.newest.peek()?, self.past.peek()?) {
            (Some(newest), Some(past)) => past < newest,
            (newest, _) => newest.is_none(),
        })
    }
}

impl<T, N: Source<Item = T>, P: Source<Item = T>> Source for Both<N, P> {
    type Item = T;

    fn peek(&mut self) -> Result<Option<&str>> {
        if self.is_past()? { self.past.peek() } else { self.newest.peek() }
    }

    fn next(&mut self) -> Result<Option<(String, T)>> {
        if self.is_past()? { self.past.next() } else { self.newest.next() }
    }

    fn leap(&mut self, bound: &[u8]) {
        self.newest.leap(bound);
        self.past.leap(bound);
    }
}

/// What a name is rolled up to: up to and with the first delimiter behind the prefix.
fn common_prefix<'n>(name: &'n str, prefix: &str, delimiter: Option<&str>) -> Option<&'n str> {
    let delimiter = delimiter.filter(|delimiter| !delimiter.is_empty())?;
    let at = name.strip_prefix(prefix)?.find(delimiter)?;
    Some(&name[..prefix.len() + at + delimiter.len()])
}

/// The least bytes behind everything that begins with `prefix`. UTF-8 knows no byte of all ones.
fn beyond(prefix: &str) -> Vec<u8> {
    key::under(prefix.as_bytes().to_vec()).end
}

/// The name in a key of the index.
fn name(key: &[u8]) -> Option<String> {
    String::from_utf8(key.get(key::NAME_AT..)?.to_vec()).ok()
}
