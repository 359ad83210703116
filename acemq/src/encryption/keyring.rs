//! The keys, and which one writes.

use std::{
    fmt,
    sync::{Arc, PoisonError, RwLock},
};

use aws_lc_rs::{
    aead::{AES_128_GCM, AES_192_GCM, AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey},
    rand,
};
use bytes::Bytes;
use zeroize::Zeroizing;

use super::frame;
use crate::{
    codec::USUAL_LENGTH,
    counted::counted,
    error::{Error, ErrorKind, Result},
};

/// Of every algorithm that a key can have.
pub(super) const TAG_LEN: usize = 16;

/// The keys that bodies are encrypted and decrypted with (AES-GCM), each under an id that travels
/// with the message. One of them writes; all of them read.
///
/// A clone is the same keyring: a key that is added reaches every codec that has one.
///
/// ```
/// # fn main() -> acemq::Result<()> {
/// use acemq::Keyring;
///
/// let keys = Keyring::new("2026-01", Keyring::generate_key()?)?;
/// keys.add("2026-02", Keyring::generate_key()?)?; // first to every reader
/// keys.use_key("2026-02")?; // then it writes
/// assert_eq!((keys.current(), keys.ids()), ("2026-02".to_owned(), vec!["2026-01".into(), "2026-02".into()]));
/// # Ok(())
/// # }
/// ```
///
/// To rotate, add the new key to every reader, then [`use_key`](Self::use_key) it where messages
/// are written, and leave the old one out when no message that it sealed is left, also in
/// dead-letter queues and outboxes. Nonces are random, so let a key seal at most 2^32 messages
/// ([NIST SP 800-38D, 8.3](https://doi.org/10.6028/NIST.SP.800-38D)).
///
/// Keys are wiped from memory when the last clone is dropped, and never shown: `Debug` has their
/// ids. The bytes that a key is made from are the caller's to wipe.
#[derive(Clone)]
pub struct Keyring(Arc<RwLock<Keys>>);

struct Keys {
    /// In the order in which they were added; few.
    all: Vec<Arc<Key>>,
    current: Arc<Key>,
}

pub(super) struct Key {
    id: String,
    /// What a frame begins with.
    head: Vec<u8>,
    cipher: LessSafeKey,
}

impl Keyring {
    /// A keyring with one key, which writes.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for a key that is not 16, 24 or 32 bytes long, and for an id that is
    /// empty, longer than 255 bytes or has a NUL.
    pub fn new(id: impl Into<String>, key: impl AsRef<[u8]>) -> Result<Self> {
        let key = Arc::new(Key::new(id.into(), key.as_ref())?);
        Ok(Self(Arc::new(RwLock::new(Keys { all: vec![Arc::clone(&key)], current: key }))))
    }

    /// Adds a key that reads, until it is [used](Self::use_key).
    ///
    /// # Errors
    /// As [`new`](Self::new), and [`ErrorKind::Config`] for an id that is there already: messages
    /// that the key under it has sealed could not be read any more.
    pub fn add(&self, id: impl Into<String>, key: impl AsRef<[u8]>) -> Result<()> {
        let key = Key::new(id.into(), key.as_ref())?;
        let mut keys = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if keys.find(&key.id).is_some() {
            let text = format!("add the key '{}': the keyring has one of that id", key.id);
            return Err(Error::new(ErrorKind::Config, text));
        }
        keys.all.push(Arc::new(key));
        Ok(())
    }

    /// Makes the key of that id the one that writes.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for an id that the keyring does not have.
    pub fn use_key(&self, id: &str) -> Result<()> {
        let mut keys = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let Some(key) = keys.find(id) else {
            let text = format!("encrypt with the key '{id}': {}", keys.holds());
            return Err(Error::new(ErrorKind::Config, text));
        };
        keys.current = key;
        Ok(())
    }

    /// The id of the key that writes.
    #[must_use]
    pub fn current(&self) -> String {
        self.writing().id.clone()
    }

    /// The ids of all keys, in the order in which they were added.
    #[must_use]
    pub fn ids(&self) -> Vec<String> {
        let keys = self.0.read().unwrap_or_else(PoisonError::into_inner);
        keys.all.iter().map(|key| key.id.clone()).collect()
    }

    /// A new random key of 32 bytes, which is wiped when it is dropped.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] where the system has no randomness to give.
    pub fn generate_key() -> Result<Zeroizing<[u8; 32]>> {
        let mut key = Zeroizing::new([0; 32]);
        fill(&mut *key)?;
        Ok(key)
    }

    pub(super) fn writing(&self) -> Arc<Key> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner).current)
    }

    pub(super) fn reading(&self, id: &str) -> Result<Arc<Key>> {
        let keys = self.0.read().unwrap_or_else(PoisonError::into_inner);
        keys.find(id).ok_or_else(|| {
            let id = id.escape_debug();
            frame::refused(&format!("it is encrypted with the key '{id}', and {}", keys.holds()))
        })
    }
}

impl Keys {
    fn find(&self, id: &str) -> Option<Arc<Key>> {
        self.all.iter().find(|key| key.id == id).map(Arc::clone)
    }

    fn holds(&self) -> String {
        let ids: Vec<_> = self.all.iter().map(|key| format!("'{}'", key.id)).collect();
        format!("the keyring holds {}", ids.join(", "))
    }
}

impl Key {
    fn new(id: String, key: &[u8]) -> Result<Self> {
        let fault = match id.len() {
            0 => Some("it is empty"),
            1..=255 if id.contains('\0') => Some("it has a NUL"),
            1..=255 => None,
            _ => Some("it is longer than 255 bytes"),
        };
        if let Some(fault) = fault {
            let text = format!("make an encryption key: its id cannot be used: {fault}");
            return Err(Error::new(ErrorKind::Config, text));
        }
        let algorithm = match key.len() {
            16 => &AES_128_GCM,
            24 => &AES_192_GCM,
            32 => &AES_256_GCM,
            length => {
                let text = format!(
                    "make the encryption key '{id}': it has {}, and must have 16, 24 or 32; a text is \
                     no key, derive one from it",
                    counted(length, "byte")
                );
                return Err(Error::new(ErrorKind::Config, text));
            }
        };
        let cipher = UnboundKey::new(algorithm, key).map_err(|_| {
            Error::new(ErrorKind::Config, format!("make the encryption key '{id}': it was refused"))
        })?;
        Ok(Self { head: frame::head(&id), id, cipher: LessSafeKey::new(cipher) })
    }

    /// A frame up to where its body begins, with a nonce that this key has never sealed with.
    pub(super) fn begin(&self) -> Result<(Vec<u8>, [u8; NONCE_LEN])> {
        let mut nonce = [0; NONCE_LEN];
        fill(&mut nonce)?;
        Ok((self.begin_with(nonce), nonce))
    }

    pub(super) fn begin_with(&self, nonce: [u8; NONCE_LEN]) -> Vec<u8> {
        let mut frame = Vec::with_capacity(self.head.len() + NONCE_LEN + TAG_LEN + USUAL_LENGTH);
        frame.extend_from_slice(&self.head);
        frame.extend_from_slice(&nonce);
        frame
    }

    /// Encrypts what was written into a frame that was begun with this nonce.
    pub(super) fn seal(&self, mut frame: Vec<u8>, nonce: [u8; NONCE_LEN]) -> Result<Bytes> {
        let failed = |why| Error::new(ErrorKind::Encode, format!("encrypt the body: {why}"));
        let is_kept = frame.starts_with(&self.head);
        let body = frame
            .get_mut(self.head.len() + NONCE_LEN..)
            .filter(|_| is_kept)
            .ok_or_else(|| failed("the codec inside has not kept what was before it"))?;
        let nonce = Nonce::assume_unique_for_key(nonce);
        let tag = self
            .cipher
            .seal_in_place_separate_tag(nonce, Aad::from(&*self.head), body)
            .map_err(|_| failed("it is too large"))?;
        frame.extend_from_slice(tag.as_ref());
        Ok(frame.into())
    }

    /// The plain text, or nothing: what was wrong would tell an attacker something.
    pub(super) fn open(&self, nonce: [u8; NONCE_LEN], head: &[u8], sealed: &[u8]) -> Option<Bytes> {
        let (text, tag) = sealed.split_at_checked(sealed.len().checked_sub(TAG_LEN)?)?;
        let mut plain = vec![0; text.len()];
        let nonce = Nonce::assume_unique_for_key(nonce);
        self.cipher.open_separate_gather(nonce, Aad::from(head), text, tag, &mut plain).ok()?;
        Some(plain.into())
    }
}

fn fill(bytes: &mut [u8]) -> Result<()> {
    rand::fill(bytes).map_err(|_| {
        Error::new(ErrorKind::Config, "make an encryption key or nonce: no randomness to be had")
    })
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyring")
            .field("current", &self.current())
            .field("ids", &self.ids())
            .finish_non_exhaustive()
    }
}
