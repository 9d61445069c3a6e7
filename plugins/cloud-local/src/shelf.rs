//! The four shelves of a region, and the ids of what stands on them.

use sha2::{Digest, Sha256};

/// Hexadecimal digits of an id behind its prefix; EC2's ids have 17.
const ID_DIGITS: usize = 16;

/// A folder of a region that holds things of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shelf {
    Bases,
    Volumes,
    Snapshots,
    Images,
}

impl Shelf {
    pub(crate) const ALL: [Self; 4] = [Self::Bases, Self::Volumes, Self::Snapshots, Self::Images];

    /// The folder's name.
    pub(crate) fn folder(self) -> &'static str {
        match self {
            Self::Bases => "bases",
            Self::Volumes => "volumes",
            Self::Snapshots => "snapshots",
            Self::Images => "images",
        }
    }

    /// The name of the record in each thing's own folder.
    pub(crate) fn record(self) -> &'static str {
        match self {
            Self::Bases => "base.json",
            Self::Volumes => "volume.json",
            Self::Snapshots => "snapshot.json",
            Self::Images => "image.json",
        }
    }

    /// What people call such a thing.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Bases => "base image",
            Self::Volumes => "volume",
            Self::Snapshots => "snapshot",
            Self::Images => "image",
        }
    }

    fn prefix(self) -> &'static str {
        match self {
            Self::Bases => "base-",
            Self::Volumes => "vol-",
            Self::Snapshots => "snap-",
            Self::Images => "img-",
        }
    }

    /// Makes the id of what an operation makes. The same token gives the same id, in every process.
    pub(crate) fn id(self, token: &str) -> String {
        let digest = Sha256::digest(token);
        let digits: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{}{}", self.prefix(), &digits[..ID_DIGITS])
    }

    /// Tells whether a text has the form of an id. Only such texts are ever joined to a path.
    pub(crate) fn is_id(self, text: &str) -> bool {
        let hex = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
        text.strip_prefix(self.prefix()).is_some_and(|rest| rest.len() == ID_DIGITS && rest.chars().all(hex))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_come_from_the_token_and_never_change() {
        insta::assert_snapshot!(Shelf::Volumes.id("token"), @"vol-3c469e9d6c5875d3");
        assert_ne!(Shelf::Volumes.id("a"), Shelf::Volumes.id("b"));
        assert!(Shelf::ALL.iter().all(|shelf| shelf.is_id(&shelf.id("token"))));
    }

    #[test]
    fn hostile_ids_are_no_ids() {
        for text in
            ["", "vol-", "vol-../../../../../x", "vol-3c469e9d6c5875d", "vol-3C469E9D6C5875D3", "img-3c469e9d6c5875d3"]
        {
            assert!(!Shelf::Volumes.is_id(text), "{text}");
        }
    }
}
