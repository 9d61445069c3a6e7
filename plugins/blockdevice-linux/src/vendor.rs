//! What an NVMe controller of EBS says of itself beyond the standard.

use std::path::Path;

/// Amazon's number among the makers of PCI devices.
const AMAZON: u16 = 0x1d0f;

/// How EBS calls its controllers.
const MODEL: &str = "Amazon Elastic Block Store";

/// Reads the device name that a volume was attached by, where the disk can tell.
///
/// Asking a controller to identify itself is a system call, for `bake-linux`; [`requested_name`] reads the answer.
pub trait VendorData: Send + Sync {
    /// Returns the name, as it was asked for: `sdf`, `/dev/sdf`.
    fn requested_name(&self, disk: &Path) -> Option<String>;
}

/// Knows nothing of any disk.
impl VendorData for () {
    fn requested_name(&self, _: &Path) -> Option<String> {
        None
    }
}

/// Reads the device name out of the 4096 bytes with which a controller identifies itself; `None` where it is not one of EBS.
pub fn requested_name(identity: &[u8]) -> Option<String> {
    let text = |from: usize, to: usize| {
        let bytes = identity.get(from..to)?;
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        Some(str::from_utf8(&bytes[..end]).ok()?.trim())
    };
    let maker = u16::from_le_bytes(identity.get(..2)?.try_into().ok()?);
    // The part that the standard leaves to makers begins at 3072; EBS puts the name there.
    let name = text(3072, 3104)?;
    (maker == AMAZON && text(24, 64)? == MODEL && !name.is_empty()).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(maker: u16, model: &str, name: &str) -> Vec<u8> {
        let mut bytes = vec![0; 4096];
        bytes[..2].copy_from_slice(&maker.to_le_bytes());
        bytes[24..64].fill(b' ');
        bytes[24..24 + model.len()].copy_from_slice(model.as_bytes());
        bytes[3072..3072 + name.len()].copy_from_slice(name.as_bytes());
        bytes
    }

    #[test]
    fn a_controller_of_ebs_tells_the_name_it_was_attached_by() {
        assert_eq!(requested_name(&identity(AMAZON, MODEL, "/dev/sdg                  ")).as_deref(), Some("/dev/sdg"));
        assert_eq!(requested_name(&identity(AMAZON, MODEL, "sdg")).as_deref(), Some("sdg"));
    }

    #[test]
    fn other_controllers_tell_nothing() {
        for other in [
            identity(0x144d, MODEL, "sdg"),
            identity(AMAZON, "Amazon EC2 NVMe Instance Storage", "ephemeral0"),
            identity(AMAZON, MODEL, ""),
            vec![0; 512],
            vec![],
        ] {
            assert_eq!(requested_name(&other), None);
        }
    }
}
