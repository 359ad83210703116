//! What is said of a body that cannot be read, without showing any of it.
//!
//! serde's errors quote the value that they stumbled over, and the text of an error goes into logs and
//! onto dead letters, which more people see than may see the payload.

/// The text of an error of serde's, without the values that it quotes.
pub(super) fn without_values(text: &str) -> String {
    let text = within(text, "invalid type: ", ", expected ", |found| {
        // `string "secret"` is still a string.
        found.split(['"', '`']).next().unwrap_or_default().trim_end()
    });
    let text = within(&text, "invalid value: ", ", expected ", |found| {
        found.split(['"', '`']).next().unwrap_or_default().trim_end()
    });
    let text = within(&text, "unknown variant `", "`, expected ", |_| "…");
    let text = within(&text, "unknown variant `", "`, there are no variants", |_| "…");
    let text = within(&text, "unknown field `", "`, expected ", |_| "…");
    within(&text, "unknown field `", "`, there are no fields", |_| "…")
}

/// Replaces what stands between two marks. The last of the second ones counts: the value may have
/// one of its own.
fn within(text: &str, from: &str, to: &str, by: impl Fn(&str) -> &str) -> String {
    let Some(start) = text.find(from).map(|at| at + from.len()) else { return text.to_owned() };
    let Some(end) = text[start..].rfind(to).map(|at| start + at) else { return text.to_owned() };
    format!("{}{}{}", &text[..start], by(&text[start..end]), &text[end..])
}

#[cfg(test)]
mod tests {
    use super::without_values;

    #[test]
    fn values_are_left_out_and_what_they_should_have_been_is_not() {
        for (said, shown) in [
            (
                r#"invalid type: string "4111, expected nothing", expected u64 at line 1 column 9"#,
                "invalid type: string, expected u64 at line 1 column 9",
            ),
            (
                "invalid type: integer `4111`, expected a string",
                "invalid type: integer, expected a string",
            ),
            ("invalid type: null, expected u64", "invalid type: null, expected u64"),
            ("invalid value: integer `-7`, expected u64", "invalid value: integer, expected u64"),
            (
                "unknown variant `4111`, expected `Card` or `Cash`",
                "unknown variant `…`, expected `Card` or `Cash`",
            ),
            ("unknown field `4111`, expected `pin`", "unknown field `…`, expected `pin`"),
            ("missing field `pin` at line 1 column 2", "missing field `pin` at line 1 column 2"),
            (
                "EOF while parsing a value at line 1 column 0",
                "EOF while parsing a value at line 1 column 0",
            ),
        ] {
            assert_eq!(without_values(said), shown);
        }
    }
}
