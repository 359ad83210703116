//! What is XML's own.

use std::collections::BTreeMap;

use futures_util::FutureExt as _;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::{Decode, Encode};
use crate::{
    Xml,
    error::{ErrorKind, Result},
};

fn write<T: Serialize + Sync + ?Sized>(codec: &Xml, payload: &T) -> Result<String> {
    let written = codec.encode(payload).now_or_never().unwrap()?;
    Ok(String::from_utf8(written.into()).unwrap())
}

fn read<T: DeserializeOwned + Send>(body: &str) -> Result<T> {
    Xml::new().decode(body.to_owned().into(), None).now_or_never().unwrap()
}

#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
struct Order {
    id: u64,
    note: Option<String>,
    lines: Vec<Line>,
    paid: bool,
}

#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
struct Line {
    sku: String,
    count: u8,
}

#[test]
fn the_root_has_the_name_of_the_type_or_the_one_that_is_asked_for() {
    let order = Order::default();
    let inside = "<id>0</id><note/><paid>false</paid>";
    assert_eq!(write(&Xml::new(), &order).unwrap(), format!("<Order>{inside}</Order>"));
    let named = Xml::new().root("order-placed");
    assert_eq!(write(&named, &order).unwrap(), format!("<order-placed>{inside}</order-placed>"));
    let map = BTreeMap::from([("a", "<1>")]);
    assert_eq!(write(&Xml::new(), &map).unwrap(), "<message><a>&lt;1&gt;</a></message>");
    assert_eq!(read::<Order>(&format!("<anything>{inside}</anything>")).unwrap(), order);
    for name in ["", "1", "a b", "a:b", "<a>", "-a"] {
        let error = write(&Xml::new().root(name), &order).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Encode);
    }
}

#[test]
fn the_root_is_a_struct_or_a_map() {
    for error in [
        write(&Xml::new(), "text").unwrap_err(),
        write(&Xml::new(), &7).unwrap_err(),
        write(&Xml::new(), &None::<Order>).unwrap_err(),
        write(&Xml::new().root("orders"), &[Order::default()]).unwrap_err(),
        write(&Xml::new(), &(1, 2)).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Encode);
        assert!(error.to_string().contains("root"), "{error}");
    }
    assert!(write(&Xml::new(), &Some(Order::default())).is_ok());
}

#[test]
fn attributes_are_fields_and_prefixes_do_not_count() {
    let body = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!-- an order -->\n\
        <o:order xmlns:o=\"urn:orders\" xmlns=\"urn:x\" id=\"7\" o:paid='true'>\n  \
        <o:lines sku=\"a &amp; b\"><o:count>2</o:count></o:lines>\n  <note><![CDATA[<b>]]> &#x41;</note>\n  \
        <lines count=\"3\" sku='c'/>\n</o:order>\n";
    let order = Order {
        id: 7,
        note: Some("<b> A".to_owned()),
        lines: vec![
            Line { sku: "a & b".to_owned(), count: 2 },
            Line { sku: "c".to_owned(), count: 3 },
        ],
        paid: true,
    };
    assert_eq!(read::<Order>(body).unwrap(), order);
}

#[test]
fn who_asks_for_no_type_gets_text_lists_and_maps() {
    let body = "<order id='7'><line>1</line><note>n</note><line>2</line><empty></empty><none/>\
        <total currency='EUR'>42.50</total></order>";
    let value: Value = read(body).unwrap();
    assert_eq!(
        value,
        json!({
            "id": "7", "line": ["1", "2"], "note": "n", "empty": "", "none": null,
            "total": { "currency": "EUR", "$text": "42.50" },
        })
    );
    // Beside its attributes a value is a value all the same.
    #[derive(Deserialize)]
    struct Order {
        total: f64,
    }
    assert_eq!(read::<Order>(body).unwrap().total, 42.5);
}

#[test]
fn a_list_that_is_not_there_is_empty_and_another_field_is_missed() {
    let order: Order = read("<o><id>1</id><paid>1</paid></o>").unwrap();
    assert_eq!(order, Order { id: 1, paid: true, ..Order::default() });
    let error = read::<Order>("<o><id>1</id></o>").unwrap_err();
    assert_eq!(error.to_string(), "read the body as XML: missing field `paid`");

    // What has a default keeps it.
    #[derive(Debug, PartialEq, Deserialize)]
    struct Settings {
        hosts: Vec<String>,
        #[serde(default = "eight")]
        threads: u8,
        #[serde(default = "localhost")]
        names: Vec<String>,
    }
    fn eight() -> u8 {
        8
    }
    fn localhost() -> Vec<String> {
        vec!["localhost".to_owned()]
    }
    let settings: Settings = read("<s/>").unwrap();
    assert_eq!(settings, Settings { hosts: vec![], threads: 8, names: localhost() });
}

#[test]
fn white_space_is_kept_in_a_value_and_dropped_between_elements() {
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Texts {
        blank: String,
        lines: String,
        inside: BTreeMap<String, String>,
        number: i32,
    }
    let texts = Texts {
        blank: "  ".to_owned(),
        lines: "\r\n a\tb\r".to_owned(),
        inside: BTreeMap::new(),
        number: 7,
    };
    let written = write(&Xml::new(), &texts).unwrap();
    assert_eq!(read::<Texts>(&written).unwrap(), texts);
    let pretty = "<t>\r\n\t<blank>  </blank>\n<lines>&#13;\n a\tb&#13;</lines>\n <inside>\n </inside> \
        <number>\n  7\n </number>\n</t>";
    assert_eq!(read::<Texts>(pretty).unwrap(), texts);
}

#[test]
fn one_value_is_not_made_of_several() {
    let error = read::<Order>("<o><id>1</id><id>2</id><paid>1</paid></o>").unwrap_err();
    assert_eq!(error.to_string(), "read the body as XML: the element `id` is there more than once");
    let error = read::<Order>("<o><id><x>1</x></id><paid>1</paid></o>").unwrap_err();
    assert!(error.to_string().contains("`id` has elements in it, not a value"), "{error}");
    let error = read::<Order>("<o>text</o>").unwrap_err();
    assert!(error.to_string().contains("`o` has text in it, not elements"), "{error}");
}
