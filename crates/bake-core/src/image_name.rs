//! Names of images: legal, never too long, and never the same for two that were wanted to differ.

use sha2::{Digest, Sha256};

/// Longest name, in characters; EC2 allows no more, and what is local today may move there tomorrow.
const LONGEST: usize = 128;

/// Shortest name, in characters, by the same rule.
const SHORTEST: usize = 3;

/// Hexadecimal digits of the hash in a shortened name: two of ten thousand such names meet once in a hundred.
const HASH: usize = 8;

/// Characters of a shortened name's end that stay: architecture, time stamp and `-ebs` fit, which people look for.
const END: usize = 40;

/// A name that cannot be made legal.
#[derive(Debug, thiserror::Error)]
#[error("the image name `{0}` has fewer than {SHORTEST} characters")]
pub struct TooShort(String);

/// Makes a name legal.
///
/// Characters that an AMI's name may not have become `_`, as in Aminator. A name that is too long loses characters in its
/// middle, for a hash of the whole of what was wanted.
pub(crate) fn image_name(wanted: &str) -> Result<String, TooShort> {
    let legal = |(place, c): (usize, char)| match c {
        // What begins so looks like an option or a hidden file.
        '-' | '.' if place == 0 => '_',
        _ if c.is_ascii_alphanumeric() || "().-/_".contains(c) => c,
        _ => '_',
    };
    let legal: String = wanted.chars().enumerate().map(legal).collect();
    match legal.len() {
        0..SHORTEST => Err(TooShort(legal)),
        SHORTEST..=LONGEST => Ok(legal),
        length => {
            let hash = Sha256::digest(wanted.as_bytes());
            let hash: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
            let start = LONGEST - END - HASH - 2;
            Ok(format!("{}-{}-{}", &legal[..start], &hash[..HASH], &legal[length - END..]))
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_legal_stays_as_it_is() {
        let longest = "n".repeat(LONGEST);
        for name in ["helloworld-2.0-3-x86_64-202611301200-ebs", "a/b(c).d_e", &longest] {
            assert_eq!(image_name(name).unwrap(), name);
        }
        assert_eq!(image_name("hello-1:2.0~rc1+b2-3").unwrap(), "hello-1_2.0_rc1_b2-3");
        assert_eq!(image_name("größe").unwrap(), "gr__e");
    }

    #[test]
    fn a_name_that_is_too_long_loses_its_middle() {
        let name = image_name(&format!("helloworld-{}-1-x86_64-202611301200-ebs", "1".repeat(200))).unwrap();
        assert_eq!(name.len(), LONGEST);
        insta::assert_snapshot!(name, @"helloworld-1111111111111111111111111111111111111111111111111111111111111111111-8b827193-11111111111111-1-x86_64-202611301200-ebs");
    }

    #[test]
    fn a_name_that_is_too_short_is_refused() {
        assert_eq!(image_name("ab").unwrap_err().to_string(), "the image name `ab` has fewer than 3 characters");
        assert!(image_name("").is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_name_is_always_legal(wanted in "\\PC{3,300}") {
            let name = image_name(&wanted).unwrap();
            prop_assert!((SHORTEST..=LONGEST).contains(&name.len()));
            prop_assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || "().-/_".contains(c)));
            prop_assert_eq!(image_name(&wanted).unwrap(), name);
        }

        /// Two long names that share their beginning and their end, as those of two builds do.
        #[test]
        fn long_names_that_differ_somewhere_stay_different(one in "[a-z0-9.]{100}", other in "[a-z0-9.]{100}") {
            let name = |middle: &str| image_name(&format!("{}{middle}{}", "s".repeat(60), "e".repeat(60))).unwrap();
            prop_assert_eq!(name(&one) == name(&other), one == other);
        }
    }
}
