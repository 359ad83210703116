use serde_json::json;

use super::*;

/// What a value of one type comes to as a field of another.
async fn field(writer: &str, value: Json, reader: &str) -> Result<Json> {
    let body = write_json(&one(writer), json!({ "f": value })).await;
    resolve_json(&one(writer), &one(reader), body).await.map(|mut it| it["f"].take())
}

#[tokio::test]
async fn numbers_are_promoted_and_never_narrowed() {
    for (writer, reader) in [
        ("int", "long"),
        ("int", "float"),
        ("int", "double"),
        ("long", "float"),
        ("long", "double"),
        ("float", "double"),
    ] {
        let (writer, reader) = (format!("{writer:?}"), format!("{reader:?}"));
        let value = if writer.contains("float") { json!(7.5) } else { json!(7) };
        let read = field(&writer, value.clone(), &reader).await.unwrap();
        assert_eq!(read.as_f64(), value.as_f64(), "{writer} as {reader}");
        let narrowed = Avro::fixed(&one(&reader)).unwrap().reader(&one(&writer)).unwrap_err();
        assert_eq!(narrowed.kind(), ErrorKind::Decode, "{reader} as {writer}");
    }
    assert_eq!(field(r#""int""#, json!(-1), r#""long""#).await.unwrap(), json!(-1));
    assert_eq!(field(r#""string""#, json!("ü"), r#""string""#).await.unwrap(), json!("ü"));
}

#[tokio::test]
async fn text_is_read_as_bytes_and_bytes_as_text_where_they_are() {
    #[derive(Debug, PartialEq, Serialize, serde::Deserialize)]
    #[serde(rename = "T")]
    struct Bytes {
        #[serde(with = "apache_avro::serde::bytes")]
        f: Vec<u8>,
    }
    let (text, bytes) = (one(r#""string""#), one(r#""bytes""#));
    let body = write_json(&text, json!({"f": "ü"})).await;
    let read: Bytes = resolve(&text, &bytes, body).await.unwrap();
    assert_eq!(read.f, "ü".as_bytes());
    let body = write(&bytes, &read).await;
    assert_eq!(resolve_json(&bytes, &text, body).await.unwrap(), json!({"f": "ü"}));
    let body = write(&bytes, &Bytes { f: vec![0xff] }).await;
    assert!(resolve_json(&bytes, &text, body).await.is_err());
}

#[tokio::test]
async fn fields_are_found_by_name_and_by_alias_whatever_their_order() {
    let writer = record(
        r#"{"name": "a", "type": "string"}, {"name": "gone", "type": {"type": "array", "items": "long"}},
           {"name": "b", "type": "int"}, {"name": "c", "type": "boolean"}"#,
    );
    let reader = record(
        r#"{"name": "c", "type": "boolean"},
           {"name": "new", "type": {"type": "map", "values": ["null", "long"]}, "default": {"x": null, "y": 7}},
           {"name": "renamed", "aliases": ["older", "b"], "type": "long"},
           {"name": "a", "type": "string", "aliases": ["gone"]}"#,
    );
    let body = write_json(&writer, json!({"a": "x", "gone": [1, 2], "b": 3, "c": true})).await;
    assert_eq!(
        resolve_json(&writer, &reader, body).await.unwrap(),
        json!({"c": true, "new": {"x": null, "y": 7}, "renamed": 3, "a": "x"})
    );
}

#[tokio::test]
async fn a_missing_field_has_its_default_of_whatever_type() {
    let reader = record(
        r#"{"name": "null", "type": "null", "default": null},
           {"name": "truth", "type": "boolean", "default": true},
           {"name": "int", "type": "int", "default": -5},
           {"name": "long", "type": {"type": "long", "logicalType": "timestamp-millis"}, "default": 12345678901},
           {"name": "float", "type": "float", "default": 1},
           {"name": "double", "type": "double", "default": 0.5},
           {"name": "text", "type": "string", "default": "ü"},
           {"name": "size", "type": {"type": "enum", "name": "Size", "symbols": ["S", "M"]}, "default": "M"},
           {"name": "list", "type": {"type": "array", "items": "int"}, "default": [1, 2]},
           {"name": "none", "type": {"type": "array", "items": "int"}, "default": []},
           {"name": "first", "type": ["long", "null"], "default": 1},
           {"name": "second", "type": ["null", "string"], "default": "x"},
           {"name": "inner", "type": {"type": "record", "name": "I", "fields": [
              {"name": "a", "type": "int"}, {"name": "b", "type": "string", "default": "b"}]},
            "default": {"a": 1}}"#,
    );
    let read = resolve_json(&record(""), &reader, Bytes::new()).await.unwrap();
    assert_eq!(
        read,
        json!({"null": null, "truth": true, "int": -5, "long": 12_345_678_901_i64, "float": 1.0,
            "double": 0.5, "text": "ü", "size": "M", "list": [1, 2], "none": [], "first": 1,
            "second": "x", "inner": {"a": 1, "b": "b"}})
    );

    #[derive(Debug, PartialEq, serde::Deserialize)]
    #[serde(rename = "T")]
    struct Binary {
        #[serde(with = "apache_avro::serde::bytes")]
        bytes: Vec<u8>,
        #[serde(with = "apache_avro::serde::fixed")]
        hash: [u8; 2],
    }
    let reader = record(
        r#"{"name": "bytes", "type": "bytes", "default": "\u0000\u00ff"},
           {"name": "hash", "type": {"type": "fixed", "name": "F", "size": 2}, "default": "\u00fe\u0001"}"#,
    );
    let read: Binary = resolve(&record(""), &reader, Bytes::new()).await.unwrap();
    assert_eq!(read, Binary { bytes: vec![0, 0xff], hash: [0xfe, 1] });
}

#[tokio::test]
async fn a_default_that_fits_nothing_or_contains_itself_is_an_error() {
    for default in [
        r#"{"name": "f", "type": "int", "default": 3000000000}"#,
        r#"{"name": "f", "type": {"type": "fixed", "name": "F", "size": 2}, "default": "abc"}"#,
        r#"{"name": "f", "type": "T", "default": {}}"#,
    ] {
        let resolved = resolve_json(&record(""), &record(default), Bytes::new()).await;
        let kind = resolved.unwrap_err().kind();
        assert!(matches!(kind, ErrorKind::Decode | ErrorKind::Config), "{default}: {kind:?}");
    }
}

#[tokio::test]
async fn an_enum_that_grew_comes_to_the_readers_default() {
    let symbols = |symbols: &str, default: &str| {
        format!(r#"{{"type": "enum", "name": "Size", "symbols": [{symbols}]{default}}}"#)
    };
    let writer = symbols(r#""L", "XL", "S""#, "");
    let reader = symbols(r#""S", "M", "L""#, r#", "default": "M""#);
    let strict = symbols(r#""S", "M", "L""#, "");
    for (written, read) in [("L", "L"), ("S", "S"), ("XL", "M")] {
        assert_eq!(field(&writer, json!(written), &reader).await.unwrap(), read);
    }
    assert_eq!(field(&writer, json!("L"), &strict).await.unwrap(), "L");
    let error = field(&writer, json!("XL"), &strict).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Decode);
    assert!(error.to_string().contains("XL"), "{error}");
}

#[tokio::test]
async fn unions_go_branch_by_branch() {
    let nullable = r#"["null", "string"]"#;
    assert_eq!(field(r#""string""#, json!("x"), nullable).await.unwrap(), "x");
    assert_eq!(field(nullable, json!("x"), r#""string""#).await.unwrap(), "x");
    let missing = field(nullable, json!(null), r#""string""#).await.unwrap_err();
    assert!(missing.to_string().contains("null cannot be read as string"), "{missing}");
    assert_eq!(field(nullable, json!(null), r#"["string", "null"]"#).await.unwrap(), json!(null));
    assert_eq!(field(r#"["null", "int"]"#, json!(7), r#"["long", "null"]"#).await.unwrap(), 7);
    // The very type goes before one that it could be promoted to.
    assert_eq!(
        field(r#""int""#, json!(7), r#"["double", "long", "int"]"#).await.unwrap(),
        json!(7)
    );
    assert_eq!(field(r#""int""#, json!(7), r#"["null", "double"]"#).await.unwrap(), json!(7.0));
    assert!(Avro::fixed(&one(nullable)).unwrap().reader(&one(r#""long""#)).is_err());
}

#[tokio::test]
async fn records_that_look_alike_are_told_apart_by_their_names() {
    let branch = |name: &str| {
        format!(
            r#"{{"type": "record", "name": "{name}", "fields": [{{"name": "n", "type": "long"}}]}}"#
        )
    };
    let union = |names: [&str; 2]| format!("[{}, {}]", branch(names[0]), branch(names[1]));
    let writer = one(&union(["Paid", "Refunded"]));
    let reader = one(&union(["Refunded", "Paid"]));
    // The writer's second branch.
    let body = Bytes::from_static(&[2, 14]);
    let values = Avro::fixed(&writer).unwrap().reader(&reader).unwrap().values();
    let Value::Record(fields) = values.decode(body, FIXED).await.unwrap() else {
        panic!("a record")
    };
    let Value::Union(branch, _) = &fields[0].1 else { panic!("a union") };
    assert_eq!(*branch, 0, "Refunded is the reader's first branch");
}

#[tokio::test]
async fn a_renamed_type_is_found_by_its_alias_only() {
    let named = |name: &str, more: &str| {
        format!(
            r#"{{"type": "record", "name": "{name}", "namespace": "shop"{more}, "fields": []}}"#
        )
    };
    let resolves = |writer: &str, reader: &str| Avro::fixed(writer).unwrap().reader(reader);
    let order = named("Order", "");
    resolves(&order, &order.replace("shop", "store")).unwrap();
    resolves(&order, &named("Purchase", r#", "aliases": ["Order"]"#)).unwrap();
    resolves(&order, &named("Purchase", r#", "aliases": ["shop.Order"]"#)).unwrap();
    for stranger in [named("Purchase", ""), named("Purchase", r#", "aliases": ["store.Order"]"#)] {
        let error = resolves(&order, &stranger).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Decode);
        let text = error.to_string();
        assert!(text.contains("shop.Order") && text.contains("shop.Purchase"), "{text}");
    }
}

#[tokio::test]
async fn a_pair_that_cannot_be_resolved_names_both_schemas_and_the_field() {
    let writer = one(r#""string""#);
    let reader = record(r#"{"name": "f", "type": "string"}, {"name": "cents", "type": "long"}"#);
    let reader = reader.replace("shop", "store");
    let error = Avro::fixed(&writer).unwrap().reader(&reader).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Decode);
    assert!(!error.is_transient());
    for part in ["shop.T", "store.T", "field cents", "default"] {
        assert!(error.to_string().contains(part), "{error}");
    }
}

#[tokio::test]
async fn a_logical_type_is_read_as_its_own_kind_or_as_what_it_is_made_of() {
    let logical =
        |of: &str, logical: &str| format!(r#"{{"type": "{of}", "logicalType": "{logical}"}}"#);
    let millis = logical("long", "timestamp-millis");
    assert_eq!(field(&millis, json!(7), r#""long""#).await.unwrap(), 7);
    assert_eq!(field(r#""long""#, json!(7), &millis).await.unwrap(), 7);
    assert_eq!(field(&logical("int", "date"), json!(7), r#""int""#).await.unwrap(), 7);
    assert_eq!(
        field(
            &logical("string", "uuid"),
            json!("8a6e0804-2bd0-4672-b79d-d97027f9071a"),
            r#""string""#
        )
        .await
        .unwrap(),
        "8a6e0804-2bd0-4672-b79d-d97027f9071a"
    );
    let decimal = |scale| {
        format!(
            r#"{{"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": {scale}}}"#
        )
    };
    for (writer, reader) in [
        (millis.clone(), logical("long", "timestamp-micros")),
        (logical("int", "date"), millis.clone()),
        (decimal(2), decimal(3)),
    ] {
        let error = Avro::fixed(&one(&writer)).unwrap().reader(&one(&reader)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Decode, "{writer} as {reader}");
    }
    // However few bytes a decimal takes.
    #[derive(Debug, PartialEq, Serialize, serde::Deserialize)]
    #[serde(rename = "T")]
    struct Price {
        #[serde(with = "apache_avro::serde::bytes")]
        f: Vec<u8>,
    }
    let (writer, reader) = (one(&decimal(2)), one(&decimal(2)).replace("shop", "store"));
    let body = write(&writer, &Price { f: vec![42] }).await;
    let read: Price = resolve(&writer, &reader, body).await.unwrap();
    assert_eq!(read.f, [42]);
}

#[tokio::test]
async fn a_type_that_contains_itself_is_resolved_all_the_way_down() {
    let list = |value: &str, more: &str| {
        record(&format!(
            r#"{{"name": "value", "type": "{value}"}}{more}, {{"name": "next", "type": ["null", "T"]}}"#
        ))
    };
    let (writer, reader) =
        (list("int", ""), list("long", r#", {"name": "mark", "type": "string", "default": "-"}"#));
    let value = json!({"value": 1, "next": {"value": 2, "next": {"value": 3, "next": null}}});
    let body = write_json(&writer, value).await;
    assert_eq!(
        resolve_json(&writer, &reader, body).await.unwrap(),
        json!({"value": 1, "mark": "-", "next": {"value": 2, "mark": "-", "next":
            {"value": 3, "mark": "-", "next": null}}})
    );
}

#[tokio::test]
async fn defaults_do_not_make_a_small_body_a_huge_one() {
    let item = |fields: &str| {
        let item = format!(r#"{{"type": "record", "name": "I", "fields": [{fields}]}}"#);
        record(&format!(r#"{{"name": "all", "type": {{"type": "array", "items": {item}}}}}"#))
    };
    let one = r#"{"name": "a", "type": "boolean"}"#;
    let long = "x".repeat(4_096);
    let two = format!(r#"{one}, {{"name": "b", "type": "string", "default": "{long}"}}"#);
    // A hundred thousand items of a byte each, in one block.
    let mut body = vec![0xc0, 0x9a, 0x0c];
    body.extend(vec![0; 100_000]);
    body.push(0);
    let error = resolve_json(&item(one), &item(&two), body).await.unwrap_err();
    assert!(error.to_string().contains("many times larger"), "{error}");
    let few = vec![4, 0, 1, 0];
    resolve_json(&item(one), &item(&two), few).await.unwrap();
}
