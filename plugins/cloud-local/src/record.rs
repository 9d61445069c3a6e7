//! What the store writes about each thing: a small JSON file with a version, replaced as a whole.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;

use bake_core::{Architecture, Package, Tags};
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::{StoreError, StoreResult};
use crate::shelf::Shelf;

/// The version that this program writes.
const VERSION: u32 = 1;

/// An image with a thousand packages and fifty tags has 200 kB; more than this is no record.
const SIZE_LIMIT: u64 = 16 << 20;

/// A disk that bakes start from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BaseRecord {
    /// Its id: `base-` and 16 hexadecimal digits.
    pub id: String,
    /// Its name, unique among the bases and images of its region.
    pub name: String,
    /// What it runs on.
    pub architecture: Architecture,
    /// Size of its disk in bytes.
    pub size: u64,
    /// When it was made.
    pub created: Timestamp,
    /// Where it comes from, for people: `debian bookworm`, a file name.
    pub source: String,
    /// The SHA-256 checksum of the file it was imported from, if that was checked.
    pub checksum: Option<String>,
    /// Its tags.
    pub tags: Tags,
}

/// A writable disk that began as a copy of a base.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeRecord {
    /// Its id: `vol-` and 16 hexadecimal digits.
    pub id: String,
    /// The base or the image it is a copy of.
    pub base: String,
    /// Size of its disk in bytes.
    pub size: u64,
    /// When it was made.
    pub created: Timestamp,
    /// Its tags.
    pub tags: Tags,
}

/// The bytes of a sealed volume, or a copy of them in another region.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotRecord {
    /// Its id: `snap-` and 16 hexadecimal digits.
    pub id: String,
    /// The volume it was taken of; that of a copy is where the original is.
    pub volume: String,
    /// For people.
    pub description: String,
    /// Size of its disk in bytes.
    pub size: u64,
    /// When it was made.
    pub created: Timestamp,
    /// Its tags.
    pub tags: Tags,
}

/// A registered image: a name for a snapshot, and what is known of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageRecord {
    /// Its id: `img-` and 16 hexadecimal digits.
    pub id: String,
    /// Its name, unique among the bases and images of its region.
    pub name: String,
    /// For people.
    pub description: String,
    /// The snapshot that holds its root disk.
    pub snapshot: String,
    /// What it runs on.
    pub architecture: Architecture,
    /// The base or the image it was made from.
    pub base: String,
    /// What was installed on request.
    pub packages: Vec<Package>,
    /// Size of its disk in bytes.
    pub size: u64,
    /// When it was made.
    pub created: Timestamp,
    /// Its tags.
    pub tags: Tags,
}

/// Something that stands on a shelf.
pub(crate) trait Record: Serialize + DeserializeOwned {
    const SHELF: Shelf;
    fn id(&self) -> &str;
    fn created(&self) -> Timestamp;
    fn tags(&self) -> &Tags;
    fn tags_mut(&mut self) -> &mut Tags;
}

macro_rules! record {
    ($type:ty, $shelf:expr) => {
        impl Record for $type {
            const SHELF: Shelf = $shelf;
            fn id(&self) -> &str {
                &self.id
            }
            fn created(&self) -> Timestamp {
                self.created
            }
            fn tags(&self) -> &Tags {
                &self.tags
            }
            fn tags_mut(&mut self) -> &mut Tags {
                &mut self.tags
            }
        }
    };
}
record!(BaseRecord, Shelf::Bases);
record!(VolumeRecord, Shelf::Volumes);
record!(SnapshotRecord, Shelf::Snapshots);
record!(ImageRecord, Shelf::Images);

/// A record that has a name, unique in its region.
pub(crate) trait Named: Record {
    fn name(&self) -> &str;
    fn size(&self) -> u64;

    /// One line for lists of candidates.
    fn line(&self) -> String {
        let (id, name) = (self.id(), self.name());
        format!("{id}  {name}  {}  {}", shown_size(self.size()), self.created().strftime("%Y-%m-%d %H:%M"))
    }
}

impl Named for BaseRecord {
    fn name(&self) -> &str {
        &self.name
    }
    fn size(&self) -> u64 {
        self.size
    }
}

impl Named for ImageRecord {
    fn name(&self) -> &str {
        &self.name
    }
    fn size(&self) -> u64 {
        self.size
    }
}

fn shown_size(bytes: u64) -> String {
    match bytes {
        0..0x4000_0000 => format!("{} MiB", bytes >> 20),
        _ => format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30)),
    }
}

/// Reads the record in a thing's folder; `None` if there is none.
pub(crate) fn read<R: Record>(folder: &Path) -> StoreResult<Option<R>> {
    #[derive(Deserialize)]
    struct Versioned {
        version: u32,
    }

    let path = folder.join(R::SHELF.record());
    let mut text = Vec::new();
    let read = File::open(&path).and_then(|file| file.take(SIZE_LIMIT).read_to_end(&mut text));
    match read {
        Ok(_) => {}
        // `NotADirectory`: a stray file among the folders of the shelf is none of our things.
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(error) => return Err(StoreError::io("read", &path)(error)),
    }
    // The version first: whatever else a newer record has is no mistake of its writer.
    let broken = |source| StoreError::Record { path: path.clone(), source };
    let Versioned { version } = serde_json::from_slice(&text).map_err(broken)?;
    if version > VERSION {
        return Err(StoreError::NewerRecord { path, found: version, known: VERSION });
    }
    serde_json::from_slice(&text).map(Some).map_err(broken)
}

/// Writes or replaces the record in a thing's folder. A reader sees the old one or the new one, after a crash too.
pub(crate) fn write<R: Record>(folder: &Path, record: &R) -> StoreResult<()> {
    let path = folder.join(R::SHELF.record());
    let temporary = folder.join(format!(".{}.making", R::SHELF.record()));
    let written = File::create(&temporary)
        .and_then(|mut file| {
            file.write_all(&to_json(record))?;
            file.sync_all()
        })
        .and_then(|()| fs::rename(&temporary, &path))
        .and_then(|()| File::open(folder)?.sync_all());
    written.map_err(|error| {
        // Best effort: what is left of it is invisible, and goes with its folder.
        let _removed = fs::remove_file(&temporary);
        StoreError::io("write", &path)(error)
    })
}

fn to_json<R: Record>(record: &R) -> Vec<u8> {
    let mut json = serde_json::Map::new();
    json.insert("version".into(), VERSION.into());
    let fields = serde_json::to_value(record).expect("records have text keys and nothing that can fail");
    json.extend(fields.as_object().expect("a record is a struct").clone());
    let mut text = serde_json::to_vec_pretty(&json).expect("it was JSON already");
    text.push(b'\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::message;

    fn volume() -> VolumeRecord {
        VolumeRecord {
            id: Shelf::Volumes.id("token"),
            base: Shelf::Bases.id("token"),
            size: 1 << 20,
            created: Timestamp::UNIX_EPOCH,
            tags: [("Key".into(), "value".into())].into(),
        }
    }

    fn read_text(text: &str) -> StoreResult<Option<VolumeRecord>> {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("volume.json"), text).unwrap();
        read(folder.path())
    }

    #[test]
    fn what_is_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(read::<VolumeRecord>(folder.path()).unwrap(), None);
        write(folder.path(), &volume()).unwrap();
        assert_eq!(read(folder.path()).unwrap(), Some(volume()));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no temporary file stays");
        insta::assert_snapshot!(fs::read_to_string(folder.path().join("volume.json")).unwrap(), @r#"
        {
          "version": 1,
          "id": "vol-3c469e9d6c5875d3",
          "base": "base-3c469e9d6c5875d3",
          "size": 1048576,
          "created": "1970-01-01T00:00:00Z",
          "tags": {
            "Key": "value"
          }
        }
        "#);
    }

    #[test]
    fn broken_records_say_where() {
        let text = read_text("{\n  \"version\": 1,\n  \"id\": 7\n}").unwrap_err();
        insta::assert_snapshot!(message(&text), @"
        the record `[folder]/volume.json` cannot be read: invalid type: integer `7`, expected a string at line 3 column 9
        hint: mend the record, or remove `[folder]` if nobody needs it
        ");
        for text in
            ["", "{", "[]", "null", "{\"version\": -1}", "{\"version\": 1}", "\u{0}\u{0}", "{\"id\": \"vol-1\"}"]
        {
            assert!(matches!(read_text(text), Err(StoreError::Record { .. })), "{text}");
        }
    }

    #[test]
    fn newer_records_are_refused_whatever_else_they_hold() {
        let text = read_text(r#"{"id": {"new": true}, "version": 2}"#).unwrap_err();
        insta::assert_snapshot!(message(&text), @"
        the record `[folder]/volume.json` has version 2, and this program knows versions up to 1
        hint: use the newer `bake` that wrote it
        ");
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_safe(bytes: Vec<u8>) {
            let folder = tempfile::tempdir().unwrap();
            fs::write(folder.path().join("volume.json"), bytes).unwrap();
            proptest::prop_assert!(read::<VolumeRecord>(folder.path()).is_err());
        }
    }
}
