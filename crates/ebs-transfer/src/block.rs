//! Blocks and their digests.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};

/// Bytes of a block; the only size that the service knows.
pub const BLOCK_SIZE: usize = 512 * 1024;

/// The SHA-256 of a whole block.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// The digest of a block of zeros.
    pub const ZERO: Self = Self([
        0x07, 0x85, 0x4d, 0x2f, 0xef, 0x29, 0x7a, 0x06, 0xba, 0x81, 0x68, 0x5e, 0x66, 0x0c, 0x33, 0x2d, 0xe3, 0x6d,
        0x5d, 0x18, 0xd5, 0x46, 0x92, 0x7d, 0x30, 0xda, 0xad, 0x6d, 0x7f, 0xda, 0x15, 0x41,
    ]);

    /// Returns the digest of a block.
    pub fn of(block: &[u8]) -> Self {
        Self(Sha256::digest(block).into())
    }

    /// Wraps the bytes of a digest.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Returns the digest as the API's headers write it.
    pub fn to_base64(self) -> String {
        STANDARD.encode(self.0)
    }

    /// Reads the digest as the API's headers write it.
    pub fn from_base64(text: &str) -> Option<Self> {
        STANDARD.decode(text).ok()?.try_into().ok().map(Self)
    }
}

impl std::fmt::Debug for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.to_base64())
    }
}

/// Returns the checksum of a whole upload (`LINEAR`): the SHA-256 over the digests of the written blocks, raw, in the order of
/// their indexes.
pub fn linear_checksum<'a>(digests: impl IntoIterator<Item = &'a Digest>) -> String {
    let mut hasher = Sha256::new();
    digests.into_iter().for_each(|digest| hasher.update(digest.0));
    STANDARD.encode(hasher.finalize())
}

/// Tells whether a block holds zeros only. Compared with a block of zeros, which the compiler does with the widest words there are.
pub(crate) fn is_zero(block: &[u8]) -> bool {
    static ZEROS: [u8; 4096] = [0; 4096];
    block.chunks(ZEROS.len()).all(|chunk| *chunk == ZEROS[..chunk.len()])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(byte: u8) -> Vec<u8> {
        vec![byte; BLOCK_SIZE]
    }

    /// The text, again and again.
    fn repeated(text: &str) -> Vec<u8> {
        text.bytes().cycle().take(BLOCK_SIZE).collect()
    }

    #[test]
    fn digests_are_those_that_the_service_computes() {
        let digests = [0, 1, 2, 3].map(|byte| Digest::of(&filled(byte)).to_base64());
        assert_eq!(digests[0], "B4VNL+8pega6gWheZgwzLeNtXRjVRpJ9MNqtbX/aFUE=");
        assert_eq!(digests[1], "M6FQvOsTwamSIx5ltPrRaBUhL8Bs20CJltMu6yzvnrs=");
        assert_eq!(digests[2], "Ioxb8/mw3beyMReNfgZ6/5ZqGRsfzT7Q4uNx7KM/zfw=");
        assert_eq!(digests[3], "RgmFYooXafbDhZc7A0SH1CVZunBNytq7Cjz2tJdNtP4=");
        assert_eq!(Digest::of(&filled(0)), Digest::ZERO);
        assert_eq!(Digest::from_base64(&digests[1]), Some(Digest::of(&filled(1))));
        assert_eq!(Digest::from_base64("AAAA"), None);
    }

    #[test]
    fn the_checksum_of_an_upload_is_over_raw_digests_in_order() {
        let digests = [1, 2, 3].map(|byte| Digest::of(&filled(byte)));
        assert_eq!(linear_checksum(&digests), "0OVclTdKfLksVVYJA6uNuY/IcV5YZyKvozmgBn9PKTU=");
        assert_eq!(linear_checksum(digests.iter().rev()), "213llEVmN+S1+rGE9GiebXA4ogLwGK1ibKeSQVsH/i0=");
        assert_eq!(linear_checksum([]), "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=");
    }

    /// Four blocks of which one is zeros, as the service once completed them.
    #[test]
    fn explicit_zeros_count() {
        let blocks = [
            repeated("stackd-ebs-synthetic-b\n"),
            repeated("stackd-ebs-synthetic-a\n"),
            filled(0),
            repeated("stackd-ebs-synthetic-c\n"),
        ];
        let digests = blocks.map(|block| Digest::of(&block));
        assert_eq!(linear_checksum(&digests), "Pq34jf4xh07iqiQpo/morRl/xL06mqy1ERimH+Hypi8=");
    }

    #[test]
    fn one_bit_is_not_zero() {
        let mut block = filled(0);
        assert!(is_zero(&block));
        block[BLOCK_SIZE - 1] = 1;
        assert!(!is_zero(&block));
    }
}
