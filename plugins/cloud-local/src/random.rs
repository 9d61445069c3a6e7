//! Random bytes from the kernel, for ids that belong to no run.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::error::{StoreError, StoreResult};

/// Returns bytes that no other call gets.
pub(crate) fn bytes() -> StoreResult<[u8; 16]> {
    let source = Path::new("/dev/urandom");
    let mut bytes = [0; 16];
    let read = File::open(source).and_then(|mut file| file.read_exact(&mut bytes));
    read.map(|()| bytes).map_err(StoreError::io("read", source))
}

/// Returns a new random GUID (RFC 9562, version 4), in the mixed byte order that GPT uses.
pub(crate) fn guid() -> StoreResult<[u8; 16]> {
    let mut guid = bytes()?;
    // GPT keeps the third field little-endian, so the version is in the upper half of byte 7.
    guid[7] = guid[7] & 0x0f | 0x40;
    guid[8] = guid[8] & 0x3f | 0x80;
    Ok(guid)
}
