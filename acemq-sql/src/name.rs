//! Who holds a claim, as the table shows it.

use uuid::Uuid;

/// The longest part of a host's name that is kept: a claim's token has 64 characters to fit in.
const MAX_HOST: usize = 20;

/// A store's own name: the first part of the tokens of its claims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HolderName(String);

impl HolderName {
    /// A name that no other store has, and that tells an operator where to look:
    /// `host:process:random`.
    pub(crate) fn new() -> Self {
        let host = gethostname::gethostname();
        let host: String = host
            .to_string_lossy()
            .chars()
            .filter(|c| c.is_ascii_alphanumeric() || *c == '-' || *c == '.')
            .take(MAX_HOST)
            .collect();
        let random = Uuid::new_v4().simple().to_string();
        Self(format!("{host}:{}:{}", std::process::id(), &random[..6]))
    }

    /// A token for one claim, at most 64 bytes.
    pub(crate) fn token(&self) -> String {
        let random = Uuid::new_v4().simple().to_string();
        format!("{}/{}", self.0, &random[..20])
    }

    /// The name in a token: all of it where another library made it.
    pub(crate) fn of(token: &str) -> &str {
        token.split('/').next().unwrap_or(token)
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_fits_its_column_and_carries_its_holders_name() {
        let name = HolderName::new();
        let token = name.token();
        assert!(token.len() <= 64, "{token}");
        assert_eq!(HolderName::of(&token), name.as_str());
        assert_ne!(name.token(), token);
        assert_ne!(HolderName::new(), name);
        let longest = format!("{}:{}:{}", "h".repeat(MAX_HOST), u32::MAX, "r".repeat(6));
        assert!(HolderName(longest).token().len() <= 64);
    }
}
