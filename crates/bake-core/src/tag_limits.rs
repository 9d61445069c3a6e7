//! The limits of tags. They are EC2's, so that what is local today can move there tomorrow.

use crate::Tags;

/// Most tags a resource may have.
pub(crate) const COUNT_LIMIT: usize = 50;
/// Longest key, in characters.
const KEY_LIMIT: usize = 128;
/// Longest value, in characters.
const VALUE_LIMIT: usize = 256;
/// Keys that begin so, in any case, belong to the cloud.
const RESERVED: &str = "aws:";
/// Keys that begin so say which run made a thing; what is taken back is known by them.
const OURS: &str = "bake:";

/// Tags that are not allowed.
#[derive(Debug, thiserror::Error)]
pub enum TagError {
    /// A key is empty or too long.
    #[error("the tag key `{key}` has {length} characters; 1 to {KEY_LIMIT} are allowed")]
    Key {
        /// The key.
        key: String,
        /// Its length in characters.
        length: usize,
    },
    /// A value is too long.
    #[error("the value of tag `{key}` has {length} characters; {VALUE_LIMIT} are allowed")]
    Value {
        /// The key.
        key: String,
        /// The length of the value in characters.
        length: usize,
    },
    /// A key is reserved.
    #[error("the tag key `{0}` begins with `{RESERVED}`, which is reserved")]
    Reserved(String),
    /// A key is one of those that find what a run has made.
    #[error("the tag key `{0}` begins with `{OURS}`, which says what belongs to which run")]
    Ours(String),
    /// There are too many.
    #[error("{0} tags are too many; {COUNT_LIMIT} are allowed")]
    Count(usize),
}

/// Refuses tags that EC2 would refuse.
///
/// # Errors
///
/// With the first that is not allowed.
pub fn check_tags(tags: &Tags) -> Result<(), TagError> {
    for (key, value) in tags {
        check_tag_key(key)?;
        let length = value.chars().count();
        if length > VALUE_LIMIT {
            return Err(TagError::Value { key: key.clone(), length });
        }
    }
    if tags.len() > COUNT_LIMIT { Err(TagError::Count(tags.len())) } else { Ok(()) }
}

/// Refuses a tag key that users may not choose.
pub(crate) fn check_users_key(key: &str) -> Result<(), TagError> {
    match begins_with(key, OURS) {
        true => Err(TagError::Ours(key.to_owned())),
        false => check_tag_key(key),
    }
}

fn begins_with(key: &str, start: &str) -> bool {
    key.get(..start.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(start))
}

/// Refuses a tag key that EC2 would refuse.
fn check_tag_key(key: &str) -> Result<(), TagError> {
    let length = key.chars().count();
    if !(1..=KEY_LIMIT).contains(&length) {
        return Err(TagError::Key { key: key.to_owned(), length });
    }
    if begins_with(key, RESERVED) {
        return Err(TagError::Reserved(key.to_owned()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(key: &str, value: &str) -> String {
        check_tags(&[(key.to_owned(), value.to_owned())].into()).unwrap_err().to_string()
    }

    #[test]
    fn limits_are_counted_in_characters() {
        assert!(check_tags(&[("ä".repeat(128), "ö".repeat(256))].into()).is_ok());
        insta::assert_snapshot!(refused("", "x"), @"the tag key `` has 0 characters; 1 to 128 are allowed");
        insta::assert_snapshot!(refused("k", &"v".repeat(257)), @"the value of tag `k` has 257 characters; 256 are allowed");
        insta::assert_snapshot!(refused("AWS:x", ""), @"the tag key `AWS:x` begins with `aws:`, which is reserved");
        assert!(refused(&"k".repeat(129), "").contains("129 characters"));
    }

    #[test]
    fn fifty_tags_are_enough() {
        let tags = |count: usize| (0..count).map(|n| (format!("key{n}"), String::new())).collect::<Tags>();
        assert!(check_tags(&tags(50)).is_ok());
        insta::assert_snapshot!(check_tags(&tags(51)).unwrap_err(), @"51 tags are too many; 50 are allowed");
    }
}
