//! Names that must not be mixed up, each a type of its own.

use serde::{Deserialize, Serialize};

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            /// Wraps the text as it is.
            pub fn new(text: impl Into<String>) -> Self {
                Self(text.into())
            }

            /// Returns the text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self::new(text)
            }
        }
    };
}

text_id!(
    /// A place of a cloud that keeps its own resources: `eu-west-1`, or a folder of the local store.
    Region
);
text_id!(
    /// Whose resources they are: twelve digits with EC2.
    Account
);
text_id!(
    /// What a cloud calls a base image.
    BaseId
);
text_id!(
    /// What a cloud calls a volume.
    VolumeId
);
text_id!(
    /// What a cloud calls a snapshot.
    SnapshotId
);
text_id!(
    /// What a cloud calls a registered image.
    ImageId
);
text_id!(
    /// A processor architecture by the kernel's name: `x86_64`, `aarch64`.
    Architecture
);

impl Architecture {
    /// Returns the architecture that this program runs on.
    pub fn of_this_machine() -> Self {
        Self::new(std::env::consts::ARCH)
    }
}
