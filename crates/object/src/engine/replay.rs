//! Reading the journal: after a crash, and for what is packed in a segment.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::api::EngineError;
use super::journal::{
    Change, GROUP_HEADER, GROUP_MAGIC, GroupHead, SEGMENT_HEADER, SegmentHead, Segments, changes_decode,
    crc32c,
};

/// A sound group.
pub(super) struct Group {
    pub head: GroupHead,
    bytes: Vec<u8>,
}

impl Group {
    /// The changes in order.
    pub fn changes(&self) -> Vec<Change<'_>> {
        changes_decode(&self.bytes[GROUP_HEADER + self.head.blobs as usize..]).unwrap_or_default()
    }

    /// Bytes of a blob, by their place in the group.
    pub fn blob(&self, offset: u64, length: u64) -> Option<&[u8]> {
        let offset = usize::try_from(offset).ok()?;
        self.bytes.get(offset..offset.checked_add(usize::try_from(length).ok()?)?)
    }
}

/// Reads the group at `offset`; `None` if there is no sound one.
pub(super) fn group_at(file: &File, offset: u64, end: u64, salt: u64) -> io::Result<Option<Group>> {
    if offset + GROUP_HEADER as u64 > end {
        return Ok(None);
    }
    let mut head = [0; GROUP_HEADER];
    file.read_exact_at(&mut head, offset)?;
    let Some(parsed) = GroupHead::decode(&head).filter(|head| head.salt == salt) else { return Ok(None) };
    if parsed.length() > end - offset {
        return Ok(None);
    }
    let length = usize::try_from(parsed.length()).expect("a group fits into memory");
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, offset)?;
    if crc32c(&bytes[8..]) != parsed.crc {
        return Ok(None);
    }
    let sound = changes_decode(&bytes[GROUP_HEADER + parsed.blobs as usize..]).is_some();
    Ok(sound.then_some(Group { head: parsed, bytes }))
}

/// The first sound group beyond `offset` with a number from `number` on.
fn group_beyond(file: &File, offset: u64, end: u64, salt: u64, number: u64) -> io::Result<Option<u64>> {
    let mut bytes = vec![0; usize::try_from(end.saturating_sub(offset)).expect("a segment fits into memory")];
    file.read_exact_at(&mut bytes, offset)?;
    for at in 1..bytes.len().saturating_sub(GROUP_HEADER) {
        if bytes[at..at + 4] == GROUP_MAGIC
            && let Some(group) = group_at(file, offset + at as u64, end, salt)?
            && group.head.number >= number
        {
            return Ok(Some(offset + at as u64));
        }
    }
    Ok(None)
}

/// Where the journal ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct End {
    pub segment: u64,
    pub offset: u64,
    /// The number of the next group.
    pub group: u64,
}

/// Reads every group from `from` on, in order, and tells where it stands. A torn tail ends it; a damaged group before sound ones is an error.
pub(super) fn replay(
    segments: &Segments,
    salt: u64,
    from: End,
    mut each: impl FnMut(End, Group) -> Result<(), EngineError>,
) -> Result<End, EngineError> {
    let numbers: Vec<u64> = segments.list()?.into_iter().filter(|number| *number >= from.segment).collect();
    let heads = heads(segments, &numbers, salt, from)?;
    let mut end = from;
    for (index, number) in numbers.iter().enumerate() {
        let file = segments.file(*number)?;
        let length = file.metadata()?.len();
        let stop = heads.get(index + 1).and_then(|head| head.as_ref()).map(|next| next.before);
        if index > 0 || from.segment == 0 {
            let Some(_) = heads[index] else {
                // Made but not yet used when the power went.
                segments.remove(*number)?;
                continue;
            };
            (end.segment, end.offset) = (*number, SEGMENT_HEADER as u64);
        }
        while let Some(group) = group_at(&file, end.offset, stop.unwrap_or(length).min(length), salt)? {
            if group.head.number != end.group {
                return Err(EngineError::Journal { segment: *number, offset: end.offset });
            }
            let (at, length) = (end, group.head.length());
            each(at, group)?;
            end.offset += length;
            end.group += 1;
        }
        match stop {
            Some(stop) if stop != end.offset => {
                return Err(EngineError::Journal { segment: *number, offset: end.offset });
            }
            Some(_) => {}
            None if group_beyond(&file, end.offset, length, salt, end.group)?.is_some() => {
                return Err(EngineError::Journal { segment: *number, offset: end.offset });
            }
            None => {}
        }
    }
    Ok(end)
}

/// The heads of the segments; only the last may be unsound, and only if it holds nothing.
fn heads(
    segments: &Segments,
    numbers: &[u64],
    salt: u64,
    from: End,
) -> Result<Vec<Option<SegmentHead>>, EngineError> {
    let mut heads = Vec::new();
    for (index, number) in numbers.iter().enumerate() {
        let damaged = EngineError::Journal { segment: *number, offset: 0 };
        if index > 0 && *number != numbers[index - 1] + 1 {
            return Err(damaged);
        }
        let file = segments.file(*number)?;
        let length = file.metadata()?.len();
        let mut bytes = vec![0; SEGMENT_HEADER.min(usize::try_from(length).unwrap_or(SEGMENT_HEADER))];
        file.read_exact_at(&mut bytes, 0)?;
        let head = SegmentHead::decode(&bytes).filter(|head| head.number == *number && head.salt == salt);
        let last = index + 1 == numbers.len();
        if head.is_none() && (!last || group_beyond(&file, 0, length, salt, from.group)?.is_some()) {
            return Err(damaged);
        }
        heads.push(head);
    }
    if from.segment > 0 && numbers.first() != Some(&from.segment) {
        return Err(EngineError::Journal { segment: from.segment, offset: from.offset });
    }
    Ok(heads)
}
