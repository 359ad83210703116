//! What somebody may send is an error at once, and never the end of the process.

use std::{collections::BTreeMap, thread, time::Duration};

use futures_util::FutureExt as _;
use proptest::{collection::vec, prelude::*};
use serde::{Deserialize, de::DeserializeOwned};

use super::{Decode, Format};
use crate::error::{Error, ErrorKind};

/// Far more of a processor's time than a bounded reader needs.
const AT_ONCE: Duration = Duration::from_secs(5);

/// As deep as what is in it.
#[derive(Debug, Deserialize)]
#[expect(dead_code, reason = "read and never looked at")]
struct Recursive {
    #[serde(default)]
    a: Option<Box<Self>>,
    #[serde(default)]
    list: Vec<Self>,
}

/// Reads a body on a thread with the stack of one of tokio's, at once.
fn read<T: DeserializeOwned + Send + 'static>(format: &str, body: Vec<u8>) -> Result<T, Error> {
    let format: Format = format.parse().unwrap();
    let read = move || {
        let read = format.decode(body.into(), None).now_or_never().unwrap();
        let taken = testkit::thread_time();
        assert!(taken < AT_ONCE, "{taken:?}");
        read
    };
    let thread = thread::Builder::new().stack_size(2 << 20).spawn(read).unwrap();
    thread.join().unwrap()
}

fn refused<T: DeserializeOwned + Send + std::fmt::Debug + 'static>(
    format: &str,
    body: impl Into<Vec<u8>>,
) -> String {
    let error = read::<T>(format, body.into()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Decode);
    assert!(!error.is_transient());
    error.to_string()
}

/// What is as deep as a format reads it does not overflow the stack either, whatever is made of it.
fn bearable(format: &str, body: &str) {
    for fits in [
        read::<serde_json::Value>(format, body.into()).is_ok(),
        read::<Untagged>(format, body.into()).is_ok(),
        read::<Recursive>(format, body.into()).is_ok(),
    ] {
        assert!(fits, "{body}");
    }
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
#[expect(dead_code, reason = "read and never looked at")]
enum Untagged {
    Outer { a: Box<Self> },
    Innermost {},
}

#[test]
fn nesting_without_end_is_refused_in_json() {
    bearable("json", &format!("{}{{}}{}", "{\"a\":".repeat(126), "}".repeat(126)));
    refused::<serde_json::Value>("json", "[".repeat(100_000));
    refused::<Recursive>("json", "{\"a\":".repeat(100_000));
}

#[cfg(feature = "toml")]
#[test]
fn nesting_without_end_is_refused_in_toml() {
    bearable("toml", &format!("a = {}{{}}{}", "{a = ".repeat(78), "}".repeat(78)));
    for body in [
        format!("a={}", "[".repeat(100_000)),
        format!("a={}{}", "[".repeat(100_000), "]".repeat(100_000)),
        format!("a={}", "{a=".repeat(100_000)),
        format!("[{}a]", "a.".repeat(100_000)),
        format!("{}a=1", "a.".repeat(100_000)),
    ] {
        refused::<serde_json::Value>("toml", body.clone());
        refused::<Recursive>("toml", body);
    }
}

#[cfg(feature = "yaml")]
#[test]
fn nesting_without_end_is_refused_in_yaml() {
    bearable("yaml", &format!("{}{{}}{}", "{a: ".repeat(47), "}".repeat(47)));
    let block: String = (0..5_000).map(|level| format!("{}a:\n", " ".repeat(level))).collect();
    for body in [
        "[".repeat(100_000),
        "{a: ".repeat(100_000),
        format!("{}1", "- ".repeat(100_000)),
        format!("{}1", "? ".repeat(100_000)),
        block,
    ] {
        refused::<serde_json::Value>("yaml", body.clone());
        refused::<Recursive>("yaml", body);
    }
}

#[cfg(feature = "yaml")]
#[test]
fn aliases_that_multiply_are_refused_in_yaml() {
    let mut bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for (name, last) in ('b'..='i').zip('a'..) {
        bomb += &format!("{name}: &{name} [{}]\n", vec![format!("*{last}"); 9].join(", "));
    }
    refused::<serde_json::Value>("yaml", bomb);
    let recursive = refused::<serde_json::Value>("yaml", "a: &a [*a]");
    assert!(!recursive.is_empty());
}

#[cfg(feature = "yaml")]
#[test]
fn yaml_is_one_document_without_types_of_a_language() {
    type Map = BTreeMap<String, serde_json::Value>;
    refused::<Map>("yaml", "a: 1\n---\na: 2\n");
    refused::<Map>("yaml", "a: !!python/object/apply:os.system [\"true\"]");
    refused::<Map>("yaml", "a: !ruby/object:Gem::Installer {}");
    refused::<Map>("yaml", "a: 1\na: 2\n");
    // Aliases of a reasonable number are read, and so are times, as text.
    let read: Map =
        read("yaml", b"a: &x [1, 2]\nb: *x\nc: 2026-11-30T12:00:00Z\n".to_vec()).unwrap();
    assert_eq!(read["b"], serde_json::json!([1, 2]));
    assert_eq!(read["c"], "2026-11-30T12:00:00Z");
}

#[test]
fn an_error_does_not_show_the_payload() {
    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "never read")]
    struct Login {
        user: u64,
    }
    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "never read")]
    struct Payment {
        by: Means,
    }
    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    enum Means {
        Card,
    }
    let secret = "s3cret-Passw0rd";
    let hides = |shown: Error| {
        let shown = format!("{shown} {shown:?}");
        assert!(!shown.contains(secret), "{shown}");
    };
    for (format, body) in [
        ("json", format!(r#"{{"password": "{secret}", "user": [1"#)),
        ("json", format!(r#"{{"user": "{secret}"}}"#)),
        ("json", format!(r#"{{"by": "{secret}"}}"#)),
        ("yaml", format!("password: {secret}\nuser: [1\n")),
        ("yaml", format!("user: {secret}\n")),
        ("yaml", format!("by: {secret}\n")),
        ("toml", format!("password = '{secret}'\nuser = [1\n")),
        ("toml", format!("user = '{secret}'\n")),
        ("toml", format!("by = '{secret}'\n")),
        ("xml", format!("<l><password>{secret}</password><user>x</user></l>")),
        ("xml", format!("<l><user>{secret}</user></l>")),
        ("xml", format!("<l><by>{secret}</by></l>")),
    ] {
        if format.parse::<Format>().is_ok() {
            hides(read::<Login>(format, body.clone().into_bytes()).unwrap_err());
            hides(read::<Payment>(format, body.into_bytes()).unwrap_err());
        }
    }
}

#[cfg(feature = "xml")]
mod xml {
    use super::*;

    #[test]
    fn a_byte_order_mark_before_it_is_no_part_of_it() {
        let body = "\u{feff}<?xml version='1.0'?><l><a>7</a></l>";
        let read: BTreeMap<String, u8> = read("xml", body.into()).unwrap();
        assert_eq!(read, BTreeMap::from([("a".to_owned(), 7)]));
    }

    #[test]
    fn nesting_without_end_is_refused() {
        bearable("xml", &format!("{}<a b=''/>{}", "<a>".repeat(127), "</a>".repeat(127)));
        for body in
            ["<a>".repeat(100_000), format!("{}{}", "<a>".repeat(100_000), "</a>".repeat(100_000))]
        {
            let error = refused::<Recursive>("xml", body);
            assert!(error.ends_with("its elements are more than 128 levels deep"), "{error}");
        }
    }

    #[test]
    fn a_document_type_definition_is_refused() {
        for body in [
            "<!DOCTYPE a><a/>",
            "<!DOCTYPE a SYSTEM \"file:///etc/passwd\"><a/>",
            "<!DOCTYPE a [<!ENTITY b \"c\">]><a>&b;</a>",
            "<!DOCTYPE a [<!ENTITY b SYSTEM \"http://127.0.0.1:1/\">]><a>&b;</a>",
        ] {
            let error = refused::<BTreeMap<String, String>>("xml", body);
            assert!(error.ends_with("document type definition, which is not read"), "{error}");
        }
        let error = refused::<BTreeMap<String, String>>("xml", "<a><b>&file;</b></a>");
        assert!(error.ends_with("it refers to an entity of its own"), "{error}");
    }

    #[test]
    fn many_attributes_and_elements_take_no_more_than_their_time() {
        let count = 50_000;
        let attributes: String = (0..count).map(|n| format!(" a{n}='1'")).collect();
        let elements: String = (0..count).map(|n| format!("<a{n}/><b>x</b>")).collect();
        let read: BTreeMap<String, serde_json::Value> =
            read("xml", format!("<r{attributes}>{elements}</r>").into_bytes()).unwrap();
        assert_eq!((read.len(), read["b"].as_array().unwrap().len()), (count + 1, count));
    }

    #[test]
    fn what_is_not_well_formed_is_refused() {
        for body in [
            "",
            "   ",
            "text",
            "<a>",
            "<a><b></a>",
            "<a></b>",
            "<a/><b/>",
            "<a/>text",
            "<a",
            "<a b></a>",
            "<a b=c/>",
            "<a b='1' b='2'/>",
            "<a>&</a>",
            "<a>&#0;</a>",
            "<a>&#xD800;</a>",
            "<?xml version='1.0' encoding='ISO-8859-1'?><a/>",
        ] {
            refused::<BTreeMap<String, String>>("xml", body);
        }
        refused::<BTreeMap<String, String>>("xml", b"<a>\xff</a>".to_vec());
    }
}

/// Something that is nearly a body of some format.
fn nearly() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        "(<a>|</a>|<a/>|<b c='1'>|</b>|<!--|-->|<!\\[CDATA\\[|\\]\\]>|&amp;|&#9;|<\\?x\\?>|text|:| |\n){0,3}",
        "(a: |- |\\? |&a |\\*a |\\[|\\]|\\{|\\}|, |\"|'|\\| |> |# |!!str |<<: |---|\n| |  ){0,4}",
        "(a = |\\[a\\]|\\[\\[a\\]\\]|a\\.b|'''|\"\"\"|1e3|inf|2026-11-30|\\{|\\}|\\[|\\]|,|\n){0,4}",
        "(\\{\"a\":|\\[|\\]|\\}|null|1e999|-|\"\\\\u|,){0,4}",
        any::<String>(),
    ];
    prop_oneof![
        4 => vec(piece, 0..12).prop_map(|pieces| pieces.concat().into_bytes()),
        1 => vec(any::<u8>(), 0..64),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn whatever_comes_is_read_or_refused(body in nearly()) {
        for name in ["bytes", "json", "text", "toml", "xml", "yaml"] {
            let Ok(format) = name.parse::<Format>() else { continue };
            let now = || bytes::Bytes::from(body.clone());
            let failures = [
                Decode::<serde_json::Value>::decode(&format, now(), None).now_or_never().unwrap().err(),
                Decode::<Recursive>::decode(&format, now(), None).now_or_never().unwrap().err(),
                Decode::<BTreeMap<String, Option<Vec<i64>>>>::decode(&format, now(), None)
                    .now_or_never().unwrap().err(),
            ];
            for error in failures.into_iter().flatten() {
                prop_assert_eq!(error.kind(), ErrorKind::Decode);
            }
        }
    }
}

#[cfg(feature = "yaml")]
#[test]
fn one_anchor_may_have_as_many_aliases_as_a_list_has_items() {
    let body = format!("- &a {{x: 1}}\n{}", "- *a\n".repeat(500));
    let read: Vec<BTreeMap<String, u8>> = read("yaml", body.into()).unwrap();
    assert_eq!(read.len(), 501);
}
