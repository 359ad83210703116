//! The body column: text where the bytes are text, base64 elsewhere.

use base64::{Engine, engine::general_purpose::STANDARD};

const UTF8: &str = "utf-8";
const BASE64: &str = "base64";

/// What goes into `body`, and into `body_encoding`.
pub(crate) fn write(bytes: &[u8]) -> (String, &'static str) {
    match std::str::from_utf8(bytes) {
        // PostgreSQL's text cannot hold U+0000.
        Ok(text) if !text.contains('\0') => (text.to_owned(), UTF8),
        _ => (STANDARD.encode(bytes), BASE64),
    }
}

/// The bytes of a row, or what is wrong with it.
pub(crate) fn read(body: Vec<u8>, encoding: &str) -> Result<Vec<u8>, String> {
    match encoding {
        UTF8 => Ok(body),
        BASE64 => STANDARD.decode(body).map_err(|cause| format!("its body is not base64: {cause}")),
        other => Err(format!("its body_encoding {other:?} is neither utf-8 nor base64")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // promise: OB-17
    #[test]
    fn text_is_kept_as_text_and_anything_else_as_base64() {
        assert_eq!(write("grüße".as_bytes()), ("grüße".to_owned(), "utf-8"));
        assert_eq!(write(b""), (String::new(), "utf-8"));
        assert_eq!(write(b"\xff\xfe"), ("//4=".to_owned(), "base64"));
        assert_eq!(write(b"a\0b"), ("YQBi".to_owned(), "base64"));
        let long = vec![0xff; 200];
        let (text, encoding) = write(&long);
        assert!(!text.contains('\n'));
        assert_eq!(read(text.into_bytes(), encoding).unwrap(), long);
        assert!(read(b"a".to_vec(), "rot13").unwrap_err().contains("rot13"));
        assert!(read(b"*".to_vec(), "base64").is_err());
    }
}
