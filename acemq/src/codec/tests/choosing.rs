//! Which codec reads a message, and which one writes it.

use ::bytes::Bytes;
use futures_util::FutureExt as _;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{AnyFormat, Decode, Encode, Format, Json, RawBytes, Text, no_codec_reads};
use crate::error::{Error, ErrorKind, Result};

fn read<T: DeserializeOwned + Send>(body: &[u8], content_type: Option<&str>) -> Result<T> {
    let codec = AnyFormat;
    assert_eq!(Decode::<T>::accepts(&codec, content_type), Format::of(content_type).is_some());
    codec.decode(Bytes::copy_from_slice(body), content_type).now_or_never().unwrap()
}

#[test]
fn every_known_content_type_is_read_in_any_letter_case_and_with_parameters() {
    #[derive(Debug, PartialEq, Deserialize)]
    struct Order {
        id: u64,
    }
    let formats: [(&str, &[u8], &[&str]); 4] = [
        (
            "json",
            b"{\"id\":7}",
            &["application/json", "text/json", "application/vnd.acme.order+json"],
        ),
        ("xml", b"<o><id>7</id></o>", &["application/xml", "text/xml", "application/soap+xml"]),
        (
            "yaml",
            b"id: 7\n",
            &[
                "application/yaml",
                "application/x-yaml",
                "text/yaml",
                "text/x-yaml",
                "application/x+yaml",
            ],
        ),
        ("toml", b"id = 7\n", &["application/toml", "text/toml", "application/x+toml"]),
    ];
    for (format, body, content_types) in formats {
        let enabled = format.parse::<Format>().is_ok();
        for content_type in content_types {
            for written in [
                content_type.to_string(),
                content_type.to_uppercase(),
                format!("{content_type}; charset=utf-8"),
            ] {
                let order = read::<Order>(body, Some(&written));
                assert_eq!(order.ok(), enabled.then_some(Order { id: 7 }), "{written}");
            }
        }
    }
    assert_eq!(read::<Order>(b"{\"id\":7}", None).unwrap(), Order { id: 7 });
}

#[test]
fn plain_text_and_bytes_become_what_they_can_be() {
    #[derive(Debug, PartialEq, Deserialize)]
    struct Id(String);
    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Colour {
        Red,
    }
    let text = Some("text/plain; charset=utf-8");
    assert_eq!(read::<String>("ıssız\n".as_bytes(), text).unwrap(), "ıssız\n");
    assert_eq!(read::<Id>(b"o-1", text).unwrap(), Id("o-1".to_owned()));
    assert_eq!(read::<u32>(b" 42\n", text).unwrap(), 42);
    assert!(read::<bool>(b"true", text).unwrap());
    assert_eq!(read::<Colour>(b"red", text).unwrap(), Colour::Red);
    assert_eq!(read::<Option<String>>(b"", text).unwrap(), Some(String::new()));
    assert_eq!(read::<serde_json::Value>(b"42", text).unwrap(), "42");

    let bytes = Some("application/octet-stream");
    assert_eq!(read::<Vec<u8>>(b"\0\xff", bytes).unwrap(), b"\0\xff");
    assert_eq!(read::<[u8; 2]>(b"\0\xff", bytes).unwrap(), *b"\0\xff");
    assert_eq!(read::<String>(b"text", bytes).unwrap(), "text");

    for error in [
        read::<u32>(b"forty-two", text).unwrap_err(),
        read::<Vec<u8>>(b"a", text).unwrap_err(),
        read::<String>(b"\xff", text).unwrap_err(),
        read::<String>(b"\xff", bytes).unwrap_err(),
        read::<u32>(b"42", bytes).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Decode, "{error}");
    }
}

#[test]
fn an_unknown_content_type_is_not_read() {
    for content_type in ["application/pdf", "text/html", "json", "application/xmlx", "yaml"] {
        assert!(!Decode::<String>::accepts(&AnyFormat, Some(content_type)));
        let error = read::<String>(b"", Some(content_type)).unwrap_err();
        let text =
            format!("no codec here reads '{content_type}': there is `AnyFormat`, and this takes");
        assert!(error.to_string().starts_with(&text), "{error}");
    }
}

#[test]
fn a_refusal_names_the_codecs_that_are_there_and_one_that_reads_it() {
    fn refusal<T: Send>(codec: &impl Decode<T>, content_type: Option<&str>) -> String {
        no_codec_reads(content_type, &codec.codec_name()).to_string()
    }
    let there = |codec: &str| format!("there is `{codec}`, and this takes ");
    let plain = Some("text/plain; charset=utf-8");
    let ours = refusal::<String>(&Named("a", None), plain);
    assert_eq!(
        ours,
        "no codec here reads 'text/plain; charset=utf-8': there is `Named`, and this takes `Text`; \
         set it with `.codec(…)`, or several as a tuple"
    );
    assert!(refusal::<String>(&(Json, Text), plain).contains(&there("(Json, Text)")));
    assert!(refusal::<String>(&Format::Json, plain).contains(&there("Format::Json")));
    let pdf = RawBytes::of_type("application/pdf");
    let of_type = there(r#"RawBytes::of_type("application/pdf")"#);
    assert!(refusal::<Bytes>(&pdf, plain).contains(&of_type));
    let checked = crate::ClaimCheck::new(Json, crate::MemoryClaimCheckStore::new());
    let around = there("ClaimCheck<Json, MemoryClaimCheckStore>");
    assert!(refusal::<String>(&checked, plain).contains(&around));
    let none = refusal::<String>(&Text, None);
    assert!(none.contains(&there("Text")) && none.contains("`Json`"), "{none}");
    // What is in a content type is somebody's, and stays on its line.
    assert!(refusal::<String>(&Text, Some("a\nb")).contains(r"'a\nb'"));
}

#[test]
fn the_codec_that_is_advised_reads_it() {
    fn advised<T: Send>(codec: &impl Decode<T>, name: &str, content_types: &[&str]) {
        for content_type in content_types {
            assert!(codec.accepts(Some(content_type)), "{content_type}");
            let text = no_codec_reads(Some(content_type), "Other").to_string();
            assert!(text.contains(&format!("this takes `{name}")), "{text}");
        }
    }
    advised::<String>(&Json, "Json`", &["application/json", "text/json", "a/b+json"]);
    advised::<String>(&Text, "Text`", &["text/plain"]);
    advised::<Bytes>(&RawBytes::default(), "RawBytes::default()`", &["application/octet-stream"]);
    #[cfg(feature = "xml")]
    advised::<String>(&crate::Xml::new(), "Xml`", &["application/xml", "text/xml", "a/b+xml"]);
    #[cfg(feature = "yaml")]
    {
        let types =
            ["application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml", "a/b+yaml"];
        advised::<String>(&crate::Yaml, "Yaml`", &types);
    }
    #[cfg(feature = "toml")]
    advised::<String>(&crate::Toml, "Toml`", &["application/toml", "text/toml", "a/b+toml"]);
    #[cfg(feature = "protobuf")]
    {
        let types = ["application/x-protobuf", "application/protobuf", "a/b+protobuf"];
        advised::<()>(&crate::Protobuf, "Protobuf`", &types);
        advised::<()>(&crate::Protobuf, "Protobuf`", &["application/vnd.google.protobuf"]);
    }
    #[cfg(feature = "avro")]
    {
        let fixed = crate::Avro::fixed(r#""string""#).unwrap();
        advised::<String>(&fixed, "Avro::fixed`", &["avro/binary", "application/avro", "a/b+avro"]);
        let reader = crate::AvroReader::new(crate::MemorySchemaRegistry::new());
        advised::<String>(&reader, "AvroReader`", &["application/vnd.acemq.avro"]);
    }
    #[cfg(feature = "encryption")]
    {
        let keys = crate::Keyring::new("k", [7; 32]).unwrap();
        let sealed = crate::Encrypted::new(Json, keys);
        advised::<String>(&sealed, "Encrypted`", &["application/vnd.acemq.encrypted"]);
    }
}

#[test]
fn a_format_is_chosen_by_its_name() {
    for (name, content_type) in [
        ("bytes", "application/octet-stream"),
        ("json", "application/json"),
        ("string", "text/plain"),
        ("text", "text/plain"),
        ("toml", "application/toml"),
        ("XML", "application/xml"),
        ("Yaml", "application/yaml"),
    ] {
        let Ok(format) = name.parse::<Format>() else { continue };
        assert_eq!(Encode::<str>::content_type(&format), content_type);
        assert_eq!(format.to_string().parse::<Format>().unwrap(), format);
    }
    let error = "protobuf".parse::<Format>().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    let text = error.to_string();
    assert!(
        text.starts_with("choose the format 'protobuf': it is none of json, text, bytes"),
        "{text}"
    );
}

#[test]
fn text_and_bytes_by_name_write_what_is_text_or_bytes() {
    #[derive(Serialize)]
    struct Id(&'static str);
    fn write<T: Serialize + Sync>(format: Format, payload: T) -> Result<Bytes> {
        format.encode(&payload).now_or_never().unwrap()
    }
    assert_eq!(write(Format::Text, "a\n").unwrap(), "a\n");
    assert_eq!(write(Format::Text, Id("o-1")).unwrap(), "o-1");
    assert_eq!(write(Format::Text, 42).unwrap(), "42");
    assert_eq!(write(Format::Text, true).unwrap(), "true");
    assert_eq!(write(Format::Bytes, vec![0_u8, 255]).unwrap(), &b"\0\xff"[..]);
    assert_eq!(write(Format::Bytes, [1_u8, 2]).unwrap(), &b"\x01\x02"[..]);
    for error in [
        write(Format::Text, vec!["a"]).unwrap_err(),
        write(Format::Text, None::<String>).unwrap_err(),
        write(Format::Bytes, "text").unwrap_err(),
        write(Format::Bytes, vec![256_u32]).unwrap_err(),
        write(Format::Bytes, vec![vec![1_u8]]).unwrap_err(),
        write(Format::Bytes, 7_u8).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Encode, "{error}");
    }
}

/// Reads every body as its name, or fails.
struct Named(&'static str, Option<ErrorKind>);

impl Decode<String> for Named {
    fn accepts(&self, content_type: Option<&str>) -> bool {
        content_type == Some("application/x-named")
    }

    async fn decode(&self, _body: Bytes, _content_type: Option<&str>) -> Result<String> {
        match self.1 {
            None => Ok(self.0.to_owned()),
            Some(kind) => Err(Error::new(kind, self.0)),
        }
    }
}

#[test]
fn the_first_of_several_codecs_that_can_read_a_body_has_it() {
    let ask = |codecs: (Named, Json, Named, Named)| {
        let accepts = |content_type| Decode::<String>::accepts(&codecs, content_type);
        assert!(
            accepts(Some("application/x-named")) && accepts(None) && !accepts(Some("text/plain"))
        );
        let named = Some("application/x-named");
        codecs.decode(Bytes::from_static(b"\"json\""), named).now_or_never().unwrap()
    };
    let (works, fails, away) = (None, Some(ErrorKind::Decode), Some(ErrorKind::Store));
    let first = ask((Named("a", works), Json, Named("b", works), Named("c", works)));
    assert_eq!(first.unwrap(), "a");
    let second = ask((Named("a", fails), Json, Named("b", works), Named("c", works)));
    assert_eq!(second.unwrap(), "b");
    let none = ask((Named("a", fails), Json, Named("b", fails), Named("c", fails)));
    assert_eq!(none.unwrap_err().to_string(), "a");
    let later = ask((Named("a", fails), Json, Named("b", away), Named("c", works)));
    assert!(later.unwrap_err().is_transient());
}

#[test]
fn several_codecs_write_with_the_first() {
    let codec = (Text, Json);
    assert_eq!(Encode::<str>::content_type(&codec), "text/plain");
    assert_eq!(codec.encode("a").now_or_never().unwrap().unwrap(), "a");
    let inner = ((Json, Text), RawBytes::default());
    assert_eq!(inner.encode("a").now_or_never().unwrap().unwrap(), "\"a\"");
    let error = Decode::<String>::decode(&codec, Bytes::new(), Some("text/html"));
    let error = error.now_or_never().unwrap().unwrap_err();
    let text =
        "no codec here reads 'text/html': there is `(Text, Json)`, and this takes one of your own";
    assert!(error.to_string().starts_with(text), "{error}");
}
