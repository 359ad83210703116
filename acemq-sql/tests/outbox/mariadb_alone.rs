//! What only MariaDB does, or only there has to be looked after.

use std::time::Duration;

use acemq::{ErrorKind, OutboxRecord, OutboxStore, RecordClaim};
use sqlx::{
    ConnectOptions,
    mysql::{MySqlConnectOptions, MySqlPoolOptions},
};

use super::database::{Database, Outbox, PAST, Pool, RAILS};
use crate::support::{claim, ids, record, record_with_body};

async fn rails(database: &Database) -> Outbox {
    for statement in RAILS {
        database.execute(statement).await;
    }
    Outbox::new(database.pool.clone())
}

#[tokio::test]
async fn a_body_that_does_not_fit_the_column_is_refused_and_the_transaction_goes_on() {
    let Some(database) = Database::create().await else { return };
    let outbox = rails(&database).await;
    let large = record_with_body("large", &[b'x'; 65_536]);
    let binary = record_with_body("binary", &[0xff; 50_000]);
    let fits = record_with_body("fits", &[b'x'; 65_535]);
    let mut transaction = database.pool.begin().await.unwrap();
    // Where the server would cut it without an error, too.
    sqlx::query("SET sql_mode = ''").execute(&mut *transaction).await.unwrap();
    for refused in [
        outbox.add(&mut transaction, &large).await,
        outbox.add(&mut transaction, &binary).await,
        outbox.add_all(&mut transaction, &[record("first"), large.clone()]).await,
        outbox.statement(&large).await.map(drop),
    ] {
        let error = refused.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
        assert!(error.to_string().contains("text holds 65535"), "{error}");
    }
    outbox.add(&mut transaction, &fits).await.unwrap();
    transaction.commit().await.unwrap();
    let claimed = claim(&outbox, 10).await;
    assert_eq!(ids(&claimed), ["fits"]);
    assert_eq!(claimed[0].content().unwrap().body(), fits.body());
}

#[tokio::test]
async fn a_body_that_the_server_does_not_take_is_refused_and_the_connection_lives_on() {
    let Some(database) = Database::create().await else { return };
    let outbox = database.outbox().await;
    let most = database.text("@@max_allowed_packet", "").await.unwrap();
    let large = record_with_body("large", &vec![b'x'; most.parse().unwrap()]);
    let mut transaction = database.pool.begin().await.unwrap();
    let error = outbox.add(&mut transaction, &large).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
    let text = error.to_string();
    assert!(text.contains(&most) && text.contains("max_allowed_packet"), "{text}");
    outbox.add(&mut transaction, &record("small")).await.unwrap();
    // As large as it may be.
    let fits = record_with_body("fits", &vec![b'x'; most.parse::<usize>().unwrap() - 8_192]);
    outbox.add(&mut transaction, &fits).await.unwrap();
    transaction.commit().await.unwrap();
    let claimed = claim(&outbox, 10).await;
    assert_eq!(ids(&claimed), ["small", "fits"]);
    assert!(claimed[1].content().unwrap().body() == fits.body());
}

// promise: BX-11
#[tokio::test]
async fn an_id_that_the_tables_collation_takes_for_anothers_is_refused_and_not_lost() {
    let Some(database) = Database::create().await else { return };
    let outbox = rails(&database).await;
    let (log, _guard) = testkit::logs::of_this_thread();
    let mut transaction = database.pool.begin().await.unwrap();
    // A snapshot from before the other one commits.
    sqlx::query("SELECT * FROM acemq_outbox").execute(&mut *transaction).await.unwrap();
    let mut other = database.pool.begin().await.unwrap();
    outbox.add(&mut other, &record("A1")).await.unwrap();
    assert_eq!(log.lines_with(&["WARN"]).len(), 1, "said once");
    other.commit().await.unwrap();

    for clash in ["a1", "A1 ", "\u{c1}1"] {
        let error = outbox.add(&mut transaction, &record(clash)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config, "{error}");
        assert!(error.to_string().contains("utf8mb4_nopad_bin"), "{error}");
    }
    let clashes: Vec<OutboxRecord> = ["b1", "B1"].map(record).into();
    assert!(outbox.add_all(&mut transaction, &clashes).await.is_err());
    // The very same record is one that was added before, also where the snapshot is older.
    outbox.add(&mut transaction, &record("A1")).await.unwrap();
    transaction.commit().await.unwrap();
    assert_eq!(log.lines_with(&["WARN"]).len(), 1);
}

#[tokio::test]
async fn a_table_that_would_lose_something_is_refused_and_says_what() {
    let Some(database) = Database::create().await else { return };
    for (table, ours, other, fault) in [
        ("a", "ENGINE=InnoDB", "ENGINE=MyISAM", "its engine is \"MyISAM\""),
        ("b", "CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin", "CHARSET=utf8mb3", "utf8mb3"),
        (
            "c",
            "created_at DATETIME(6)",
            "created_at TIMESTAMP(6)",
            "created_at is of type timestamp",
        ),
        ("d", "body LONGTEXT", "body LONGBLOB", "body is of type longblob"),
        ("e", "id VARCHAR(64)", "id CHAR(64)", "id is of type char(64)"),
    ] {
        let outbox = Outbox::new(database.pool.clone()).table(table).unwrap();
        let create = outbox.schema_statements().swap_remove(0);
        assert!(create.contains(ours), "{create}");
        database.execute(&create.replace(ours, other)).await;
        let error = outbox.pending_count().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config, "{error}");
        assert!(error.to_string().contains(fault), "{error}");
    }
}

#[tokio::test]
async fn a_mark_that_has_to_wait_locks_no_gap_that_a_writer_might_need() {
    let Some(database) = Database::create().await else { return };
    let outbox = database.outbox().await;
    let mut transaction = database.pool.begin().await.unwrap();
    outbox.add(&mut transaction, &record("z")).await.unwrap();
    transaction.commit().await.unwrap();
    let held = claim(&outbox, 1).await[0].claim().clone();
    let mut open = database.pool.begin().await.unwrap();
    let look = "SELECT id FROM acemq_outbox WHERE id = 'z' FOR UPDATE";
    sqlx::query(look).fetch_one(&mut *open).await.unwrap();

    // One of its records is gone, and the gap is where that was; for the other it waits.
    let marking = tokio::spawn({
        let (outbox, gone) = (outbox.clone(), RecordClaim::new("m", "t"));
        async move { outbox.mark_published(&[gone, held]).await }
    });
    let waiting = "FROM information_schema.processlist WHERE db = DATABASE() \
                   AND info LIKE '%SET published_at%' AND id <> CONNECTION_ID()";
    let waits = async || database.text("count(*)", waiting).await.unwrap() == "1";
    testkit::eventually("the mark waits", Duration::from_secs(10), waits).await;

    let pool = database.impatient_pool().await;
    let mut transaction = pool.begin().await.unwrap();
    outbox.add(&mut transaction, &record("n")).await.unwrap();
    transaction.commit().await.unwrap();
    open.rollback().await.unwrap();
    marking.await.unwrap().unwrap();
    assert_eq!(ids(&claim(&outbox, 10).await), ["n"]);
}

/// One connection, prepared by the application.
async fn pool_with(database: &Database, setup: &str) -> Pool {
    let setup = setup.to_owned();
    let pool = MySqlPoolOptions::new().max_connections(1).after_connect(move |connection, _| {
        let setup = sqlx::AssertSqlSafe(setup.clone());
        Box::pin(async move { sqlx::raw_sql(setup).execute(connection).await.map(drop) })
    });
    pool.connect_with(database.options()).await.unwrap()
}

#[tokio::test]
async fn what_the_application_has_set_for_its_sessions_changes_nothing() {
    let Some(database) = Database::create().await else { return };
    let creator = database.outbox().await;
    let strange = "it's \\ a \"strange\" \u{1F4E6} text";
    for (n, setup) in [
        "SET sql_mode = ''",
        "SET sql_mode = 'NO_BACKSLASH_ESCAPES'",
        "SET sql_mode = 'ANSI_QUOTES,PIPES_AS_CONCAT,IGNORE_SPACE'",
        "SET sql_mode = 'TRADITIONAL,ONLY_FULL_GROUP_BY'",
        "SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE",
        "SET time_zone = '-11:00'",
        "SET NAMES latin1",
        "SET NAMES gbk",
        "SET NAMES utf8mb4 COLLATE utf8mb4_turkish_ci",
    ]
    .iter()
    .enumerate()
    {
        let pool = pool_with(&database, setup).await;
        let outbox = Outbox::new(pool.clone());
        let added = record_with_body(&format!("{n} \u{1F4E6}"), strange.as_bytes());
        let mut transaction = pool.begin().await.unwrap();
        outbox.add(&mut transaction, &added).await.unwrap();
        transaction.commit().await.unwrap();
        let claimed = claim(&outbox, 10).await;
        assert_eq!(claimed.len(), 1, "{setup}");
        assert_eq!(claimed[0].content().unwrap(), &added, "{setup}");
        assert!(claim(&creator, 10).await.is_empty(), "{setup}");
        database.execute(&format!("UPDATE acemq_outbox SET locked_until = {PAST}")).await;
        let claimed = claim(&creator, 10).await;
        assert_eq!(claimed.len(), 1, "{setup}");
        assert_eq!(claimed[0].content().unwrap(), &added, "{setup}");
        outbox.mark_published(&[claimed[0].claim().clone()]).await.unwrap();
        assert_eq!(creator.pending_count().await.unwrap(), 0, "{setup}");
    }
}

#[tokio::test]
async fn nothing_that_is_set_for_a_statement_stays_with_the_applications_connection() {
    let Some(database) = Database::create().await else { return };
    let pool = database.pool_of_one().await;
    let outbox = Outbox::new(pool.clone());
    outbox.create_table_if_absent().await.unwrap();
    let settings = "SELECT CONCAT_WS(' ', @@tx_isolation, @@time_zone, @@sql_mode, \
                    @@character_set_client, @@collation_connection, @@innodb_lock_wait_timeout)";
    let before: String = sqlx::query_scalar(settings).fetch_one(&pool).await.unwrap();

    let mut transaction = pool.begin().await.unwrap();
    outbox.add(&mut transaction, &record("a")).await.unwrap();
    transaction.commit().await.unwrap();
    let claimed = claim(&outbox, 1).await;
    assert!(reads_are_repeatable(&database, &pool).await);
    outbox.mark_published(&[claimed[0].claim().clone()]).await.unwrap();
    assert!(reads_are_repeatable(&database, &pool).await);
    outbox.purge_published(Duration::ZERO).await.unwrap();
    assert!(reads_are_repeatable(&database, &pool).await);
    let after: String = sqlx::query_scalar(settings).fetch_one(&pool).await.unwrap();
    assert_eq!(after, before);

    // A statement that is refused before it has begun.
    database.execute("DROP TABLE acemq_outbox").await;
    assert!(outbox.mark_published(&[claimed[0].claim().clone()]).await.is_err());
    assert!(reads_are_repeatable(&database, &pool).await);
}

/// Whether the next transaction of that pool is at the server's default level.
async fn reads_are_repeatable(database: &Database, pool: &Pool) -> bool {
    database.execute("CREATE TABLE IF NOT EXISTS probe (n INTEGER) ENGINE=InnoDB").await;
    let mut transaction = pool.begin().await.unwrap();
    let count = "SELECT COUNT(*) FROM probe";
    let first: i64 = sqlx::query_scalar(count).fetch_one(&mut *transaction).await.unwrap();
    database.execute("INSERT INTO probe VALUES (1)").await;
    let second: i64 = sqlx::query_scalar(count).fetch_one(&mut *transaction).await.unwrap();
    transaction.rollback().await.unwrap();
    first == second
}

#[tokio::test]
async fn messages_are_not_logged_though_sqlx_logs_the_text_of_statements() {
    let Some(database) = Database::create().await else { return };
    database.outbox().await;
    let slow = Duration::ZERO;
    let options = database.options().log_statements("debug".parse().unwrap());
    let options = options.log_slow_statements("warn".parse().unwrap(), slow);
    let pool = MySqlPoolOptions::new().connect_with(options).await.unwrap();
    let (log, _guard) = testkit::logs::of_this_thread();
    let outbox = Outbox::new(pool.clone());
    let mut transaction = pool.begin().await.unwrap();
    outbox.add(&mut transaction, &record_with_body("a", b"confidential")).await.unwrap();
    transaction.commit().await.unwrap();
    assert_eq!(claim(&outbox, 1).await.len(), 1);
    let lines = log.lines_with(&[]);
    assert!(lines.iter().any(|line| line.contains("COMMIT")), "{lines:?}");
    assert!(!lines.iter().any(|line| line.contains("confidential")), "{lines:?}");
}

#[tokio::test]
async fn what_waiting_does_not_mend_is_no_outage_and_says_what_the_database_said() {
    let Some(database) = Database::create().await else { return };
    let there: MySqlConnectOptions = database.url().parse().unwrap();
    for (kind, said, options) in [
        // It does not tell a login without rights to everything which databases there are.
        (ErrorKind::Refused, "nowhere", there.clone().database("nowhere")),
        (ErrorKind::Authentication, "nobody", there.clone().username("nobody").password("secret")),
    ] {
        let pool = MySqlPoolOptions::new().connect_lazy_with(options);
        let error = Outbox::new(pool).pending_count().await.unwrap_err();
        assert_eq!((error.kind(), error.is_transient()), (kind, false), "{error}");
        assert!(error.to_string().contains(said), "{error}");
        assert!(!format!("{error:?}").contains("secret"), "{error:?}");
    }
    let away = MySqlPoolOptions::new().acquire_timeout(Duration::from_secs(1));
    let away = away.connect_lazy_with(there.port(1));
    let away = Outbox::new(away).pending_count().await.unwrap_err();
    assert_eq!((away.kind(), away.is_transient()), (ErrorKind::Store, true), "{away}");
}
