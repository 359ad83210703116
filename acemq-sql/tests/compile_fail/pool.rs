use acemq::OutboxRecord;
use acemq_sql::SqliteOutbox;
use sqlx::SqlitePool;

async fn place(outbox: &SqliteOutbox, pool: &mut SqlitePool, record: &OutboxRecord) {
    outbox.add(pool, record).await.unwrap();
}

fn main() {}
