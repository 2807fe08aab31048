//! What a file that is not an image seems to be, so that the refusal can say it.

use model::Error;

/// What we accept, in the words of the refusals.
const ACCEPTED: &str = "an OCI image archive or layout, a docker archive (docker save), or a root file system \
                        as tar, tar.gz or tar.zst is accepted";

/// Byte patterns at fixed places, the more special first.
const KNOWN: &[(usize, &[u8], &str)] = &[
    (0, b"QFI\xfb", "a qcow2 disk image"),
    (0, b"\x7fELF", "a program (ELF)"),
    (0, b"PK\x03\x04", "a zip archive"),
    (0, b"\xfd7zXZ\x00", "xz-compressed data"),
    (0, b"BZh", "bzip2-compressed data"),
    (0, b"\x04\x22\x4d\x18", "lz4-compressed data"),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (0, b"hsqs", "a squashfs file system"),
    (0, b"!<arch>\n", "a Debian package or ar archive"),
    (0, b"\xed\xab\xee\xdb", "an RPM package"),
    (0, b"070701", "a cpio archive"),
    (0, b"KDMV", "a VMDK disk image"),
    (0, b"#!", "a script"),
    (0, b"{", "a JSON document"),
    (0, b"[", "a JSON document"),
    (0, b"<", "an HTML or XML document"),
    (510, b"\x55\xaa", "a raw disk image"),
];

/// The refusal of something that is not an image; `head` is how it begins.
pub fn not_an_image(head: &[u8]) -> Error {
    refused(format!("{} was found", seems(head)))
}

/// What begins like this seems to be.
pub fn seems(head: &[u8]) -> &'static str {
    if head.is_empty() {
        "an empty file"
    } else if let Some((_, _, name)) =
        KNOWN.iter().find(|(at, magic, _)| head.get(*at..).is_some_and(|rest| rest.starts_with(magic)))
    {
        name
    } else if head.iter().all(|byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace()) {
        "plain text"
    } else {
        "data of an unknown kind"
    }
}

/// A refusal that says what was found and then what is accepted.
pub fn refused(found: impl std::fmt::Display) -> Error {
    Error::invalid(format!("this is not an image: {found}, but {ACCEPTED}"))
}
