use acemq::OutboxRecord;
use acemq_sql::SqliteOutbox;
use sqlx::SqliteConnection;

async fn place(outbox: &SqliteOutbox, connection: &mut SqliteConnection, record: &OutboxRecord) {
    outbox.add(connection, record).await.unwrap();
}

fn main() {}
