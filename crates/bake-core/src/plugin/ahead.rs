use crate::{Account, BaseImage, Encryption, Medium, Region};

/// What a finalizer will ask of the cloud, as far as that is known before anything is made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wishes {
    /// Copies of the images.
    pub copies: Vec<CopyTarget>,
    /// Accounts that may use the images, in every region.
    pub shared_with: Vec<Account>,
    /// Sizes in bytes that root disks are to have.
    pub root_disks: Vec<u64>,
}

/// Where a copy of every image goes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CopyTarget {
    /// The region.
    pub region: Region,
    /// Whose it will be; the bake's own account if not set.
    pub account: Option<Account>,
    /// How its bytes are encrypted.
    pub encryption: Encryption,
}

/// What a cloud is asked before anything is made: will all of this go well?
#[derive(Clone, Debug)]
pub struct Ahead {
    /// What the bake starts from.
    pub base: BaseImage,
    /// How its volume comes to this machine.
    pub medium: Medium,
    /// What the finalizers will ask for.
    pub wishes: Wishes,
}

impl Wishes {
    /// Adds those of another finalizer.
    pub fn add(&mut self, other: Self) {
        self.copies.extend(other.copies);
        self.shared_with.extend(other.shared_with);
        self.root_disks.extend(other.root_disks);
    }
}
