use acemq::{ErrorKind, RegisteredSchema, SchemaFormat, SchemaRegistry};

use super::{
    AVRO, avro,
    database::{Database, Schemas},
    known, versions,
};

// promise: SR-1
#[tokio::test]
async fn ids_begin_at_one_and_are_the_same_after_a_restart() {
    let Some(database) = Database::create().await else { return };
    let registry = database.schemas().await;
    assert_eq!(avro(&registry, "shop.Order", "\"string\"").await.unwrap(), 1);
    assert_eq!(avro(&registry, "shop.Order", "\"long\"").await.unwrap(), 2);
    assert_eq!(avro(&registry, "shop.Refund", "\"int\"").await.unwrap(), 3);
    assert_eq!(avro(&registry, "shop.Order", "\"string\"").await.unwrap(), 1);
    // Whatever the subject: the text decides, to the last space.
    assert_eq!(avro(&registry, "shop.Refund", "\"string\"").await.unwrap(), 1);
    assert_eq!(avro(&registry, "shop.Order", "\"string\" ").await.unwrap(), 4);

    database.pool.close().await;
    let after = Schemas::new(database.another_pool().await);
    after.create_table_if_absent().await.unwrap();
    assert_eq!(avro(&after, "shop.Order", "\"long\"").await.unwrap(), 2);
    assert_eq!(avro(&after, "shop.Order", "\"bytes\"").await.unwrap(), 5);
    let order = known(&after, 2).await.unwrap();
    assert_eq!((order.subject.as_str(), order.definition.as_str()), ("shop.Order", "\"long\""));
    assert_eq!((order.format, order.version), (AVRO, 2));
    assert_eq!(known(&after, 6).await, None);
    assert_eq!(known(&after, u32::MAX).await, None);

    assert_eq!(versions(&after, "shop.Order").await, [(1, 1), (2, 2), (4, 3), (5, 4)]);
    assert_eq!(versions(&after, "shop.Refund").await, [(3, 1)]);
    assert_eq!(versions(&after, "nothing").await, []);
    assert_eq!(after.latest("shop.Order").await.unwrap().unwrap().id.get(), 5);
    assert_eq!(after.latest("nothing").await.unwrap(), None);
}

// promise: SR-2
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_same_schemas_from_many_replicas_at_once_end_as_one_row_and_one_id_each() {
    let Some(database) = Database::create().await else { return };
    let registry = database.schemas().await;
    let other = Schemas::new(database.another_pool().await);
    let mut replicas = tokio::task::JoinSet::new();
    for replica in 0..8_u32 {
        let registry = if replica % 2 == 0 { registry.clone() } else { other.clone() };
        replicas.spawn(async move {
            let mut ids = Vec::new();
            for n in 0..20 {
                // Half of them begin at the other end.
                let n = if replica < 4 { n } else { 19 - n };
                ids.push((n, avro(&registry, "s", &format!("schema {n}")).await.unwrap()));
            }
            ids.sort_unstable();
            ids
        });
    }
    let all = replicas.join_all().await;
    assert!(all.iter().all(|ids| ids == &all[0]), "{all:?}");
    let mut ids: Vec<_> = all[0].iter().map(|(_, id)| *id).collect();
    ids.sort_unstable();
    assert_eq!(ids, (1..=20).collect::<Vec<_>>(), "no gaps and no doubles");
    assert_eq!(database.count("acemq_schema_registry").await, 20);
}

#[tokio::test]
async fn subjects_that_differ_in_case_accents_or_spaces_are_different_subjects() {
    let Some(database) = Database::create().await else { return };
    let registry = database.schemas().await;
    let subjects = ["A1", "a1", "A1 ", "Á1", "A\u{301}1", "Ａ１"];
    for (n, subject) in (1..).zip(subjects) {
        assert_eq!(avro(&registry, subject, subject).await.unwrap(), n);
    }
    for (n, subject) in (1..).zip(subjects) {
        assert_eq!(versions(&registry, subject).await, [(n, 1)], "{subject}");
        assert_eq!(known(&registry, n).await.unwrap().version, 1, "{subject}");
    }
}

#[tokio::test]
async fn a_definition_comes_back_byte_for_byte() {
    let Some(database) = Database::create().await else { return };
    let registry = database.schemas().await;
    let long = "x".repeat(100_000);
    for text in ["it's", "\\", "$1 ? :name %s", "a\r\nb\t ", "\u{1F4E6} посылка", &long] {
        let format = SchemaFormat::Other("text".to_owned());
        let id = registry.register("any text", &format, text).await.unwrap();
        let schema = registry.by_id(id).await.unwrap().unwrap();
        assert_eq!((schema.definition.as_str(), schema.format), (text, format));
        let rows = format!("FROM acemq_schema_registry WHERE id = {id}");
        let fingerprint = database.text("fingerprint", &rows).await.unwrap();
        assert_eq!(fingerprint, RegisteredSchema::fingerprint(text));
    }
    assert!(registry.versions("any\0text").await.unwrap().is_empty());
}

#[tokio::test]
async fn the_same_text_in_another_format_is_refused_and_names_both() {
    let Some(database) = Database::create().await else { return };
    let registry = database.schemas().await;
    avro(&registry, "a", "{}").await.unwrap();
    let error = registry.register("a", &SchemaFormat::JsonSchema, "{}").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    let text = error.to_string();
    assert!(text.contains("as json-schema") && text.contains("as avro, with id 1"), "{text}");
}

#[tokio::test]
async fn what_no_row_can_hold_is_refused_and_takes_no_id() {
    let Some(database) = Database::create().await else { return };
    let registry = database.schemas().await;
    for (subject, definition, kind) in [
        ("", "d", ErrorKind::Config),
        ("s", "", ErrorKind::Config),
        (&*"s".repeat(256), "d", ErrorKind::TooLarge),
        ("s", "\0", ErrorKind::Encode),
    ] {
        assert_eq!(avro(&registry, subject, definition).await.unwrap_err().kind(), kind);
    }
    assert_eq!(avro(&registry, &"ü".repeat(255), "d").await.unwrap(), 1);
}
