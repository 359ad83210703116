//! What tells one instance of all sagas from another.

use sha2::{Digest as _, Sha256};

use crate::error::{Error, ErrorKind, Result};

/// The longest key in bytes; the column is that wide.
const MAX_KEY: usize = 255;
/// The longest name of a saga in bytes.
const MAX_NAME: usize = 100;

/// `<saga>/<id>`: the key of an instance in its store, and the correlation id of what it sends.
pub(super) fn of(saga: &str, id: &str) -> Result<String> {
    let refused = |kind, why: &str| {
        Err(Error::new(
            kind,
            format!("use {id:?} as the id of an instance of saga \"{saga}\": {why}"),
        ))
    };
    if id.is_empty() {
        return refused(ErrorKind::Config, "it is empty; the order's number, say, will do");
    }
    if id.contains('\0') {
        return refused(ErrorKind::Encode, "it holds U+0000, which no text column can");
    }
    let key = format!("{saga}/{id}");
    if key.len() > MAX_KEY {
        let why = format!(
            "with the saga's name it has {} bytes, and at most {MAX_KEY} fit; use a shorter id or a \
             hash of it",
            key.len()
        );
        return refused(ErrorKind::TooLarge, &why);
    }
    Ok(key)
}

/// The id in a key, if it is one of that saga's.
pub(super) fn id_in<'k>(saga: &str, key: &'k str) -> Option<&'k str> {
    key.strip_prefix(saga)?.strip_prefix('/').filter(|id| !id.is_empty())
}

/// What is wrong with a saga's name for keys, if anything.
pub(super) fn name_fault(saga: &str) -> Option<String> {
    if saga.contains(['/', '\0']) {
        Some(
            "its name holds a slash or U+0000, and is the part before the slash of its keys".into(),
        )
    } else if saga.len() > MAX_NAME {
        Some(format!("its name has {} bytes, and at most {MAX_NAME} fit", saga.len()))
    } else {
        None
    }
}

/// What a list of steps is recognised by: its SHA-256.
pub(super) fn fingerprint<'n>(steps: impl IntoIterator<Item = &'n str>) -> String {
    let mut hash = Sha256::new();
    for step in steps {
        // With its length before it, so that no two lists read the same.
        hash.update((step.len() as u64).to_be_bytes());
        hash.update(step);
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_lead_back_to_their_ids_and_what_does_not_fit_is_refused() {
        let key = of("booking", "o/1").unwrap();
        assert_eq!(key, "booking/o/1");
        assert_eq!(id_in("booking", &key), Some("o/1"));
        assert_eq!(id_in("book", &key), None);
        assert_eq!(id_in("booking", "booking/"), None);
        assert_eq!(of("booking", "").unwrap_err().kind(), ErrorKind::Config);
        assert_eq!(of("booking", "a\0").unwrap_err().kind(), ErrorKind::Encode);
        assert_eq!(of("booking", &"i".repeat(248)).unwrap_err().kind(), ErrorKind::TooLarge);
        assert!(of("booking", &"i".repeat(247)).is_ok());
    }

    #[test]
    fn lists_of_steps_have_fingerprints_of_their_own() {
        let lists: [&[&str]; 5] = [&["a", "b"], &["b", "a"], &["ab"], &["a"], &["a", "b", ""]];
        let prints: std::collections::BTreeSet<_> =
            lists.iter().map(|list| fingerprint(list.iter().copied())).collect();
        assert_eq!(prints.len(), lists.len());
        assert!(prints.iter().all(|print| print.len() == 64));
    }
}
