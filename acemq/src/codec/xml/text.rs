//! Names, text and numbers as XML has them.

use super::Fault;

/// The numbers that XML Schema has words for.
pub(super) fn special(value: f64) -> Option<&'static str> {
    if value.is_nan() {
        Some("NaN")
    } else if value == f64::INFINITY {
        Some("INF")
    } else if value == f64::NEG_INFINITY {
        Some("-INF")
    } else {
        None
    }
}

/// Text as a document has it.
pub(super) fn escape(out: &mut String, text: &str) -> Result<(), Fault> {
    let mut rest = text;
    let special = |c: char| {
        matches!(c, '&' | '<' | '>' | '\u{fffe}' | '\u{ffff}')
            || (c < ' ' && c != '\t' && c != '\n')
    };
    while let Some(at) = rest.find(special) {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        let mut characters = from.chars();
        out.push_str(match characters.next() {
            Some('&') => "&amp;",
            Some('<') => "&lt;",
            Some('>') => "&gt;",
            // As it is, it would be read as a line feed.
            Some('\r') => "&#13;",
            _ => {
                return Err(Fault::new(
                    "a text in it has a control character, for which XML has no form",
                ));
            }
        });
        rest = characters.as_str();
    }
    out.push_str(rest);
    Ok(())
}

/// Whether an element can have that name.
pub(super) fn check_name(name: &str) -> Result<(), Fault> {
    let mut characters = name.chars();
    if characters.next().is_some_and(begins_name) && characters.all(continues_name) {
        Ok(())
    } else {
        // It may be a key of the payload's, which is not shown.
        Err(Fault::new(
            "a name or key in it cannot be the name of an XML element: that begins with a letter or \
             underscore, and goes on with letters, digits, underscores, hyphens and full stops",
        ))
    }
}

/// `NameStartChar` of the XML specification, but for the colon that ends a prefix.
fn begins_name(c: char) -> bool {
    matches!(c,
        'A'..='Z' | '_' | 'a'..='z' | '\u{c0}'..='\u{d6}' | '\u{d8}'..='\u{f6}'
        | '\u{f8}'..='\u{2ff}' | '\u{370}'..='\u{37d}' | '\u{37f}'..='\u{1fff}'
        | '\u{200c}'..='\u{200d}' | '\u{2070}'..='\u{218f}' | '\u{2c00}'..='\u{2fef}'
        | '\u{3001}'..='\u{d7ff}' | '\u{f900}'..='\u{fdcf}' | '\u{fdf0}'..='\u{fffd}'
        | '\u{10000}'..='\u{effff}')
}

/// `NameChar` of the XML specification, but for the colon.
fn continues_name(c: char) -> bool {
    begins_name(c)
        || matches!(c,
            '-' | '.' | '0'..='9' | '\u{b7}' | '\u{300}'..='\u{36f}' | '\u{203f}'..='\u{2040}')
}
