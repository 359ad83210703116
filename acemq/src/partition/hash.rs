//! Which partition a key belongs to, as all libraries of the family find it.

/// The partition of a key among that many. Where their number is no power of two, Java finds the same
/// one, and other languages do not.
pub(super) fn partition_of(key: &str, count: u32) -> u32 {
    if count <= 1 {
        return 0;
    }
    // Java's integers are signed, and its remainder follows the divisor: so does this one.
    let hash = i64::from(fnv1a(key.as_bytes()).cast_signed());
    let partition = hash.rem_euclid(i64::from(count));
    // It is less than the count, which is of this type.
    u32::try_from(partition).unwrap_or_default()
}

/// FNV-1a of 32 bits.
fn fnv1a(bytes: &[u8]) -> u32 {
    const OFFSET_BASIS: u32 = 0x811c_9dc5;
    const PRIME: u32 = 0x0100_0193;
    bytes.iter().fold(OFFSET_BASIS, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(PRIME))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    #[test]
    fn every_library_of_the_family_finds_the_same_partition() {
        let vectors: Value =
            serde_json::from_str(include_str!("../../tests/vectors/partition.json")).unwrap();
        let cases = vectors["cases"].as_array().unwrap();
        assert!(cases.len() > 10);
        for case in cases {
            let key = case["key"].as_str().unwrap();
            assert_eq!(format!("{:08x}", fnv1a(key.as_bytes())), case["hash"], "{key:?}");
            for (count, partition) in case["partitions"].as_object().unwrap() {
                let found = partition_of(key, count.parse().unwrap());
                assert_eq!(u64::from(found), partition.as_u64().unwrap(), "{key:?} of {count}");
            }
        }
    }

    proptest! {
        #[test]
        fn a_key_has_one_partition_and_it_is_there(key in "\\PC{0,40}", count in 0_u32..=2_000) {
            let partition = partition_of(&key, count);
            prop_assert!(partition < count.max(1));
            prop_assert_eq!(partition, partition_of(&key, count));
            if count.is_power_of_two() {
                prop_assert_eq!(partition, fnv1a(key.as_bytes()) % count);
            }
        }
    }
}
