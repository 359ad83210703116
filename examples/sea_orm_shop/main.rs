//! An application that uses SeaORM, with the outbox in its transactions.
//!
//! ```text
//! cargo run --example sea_orm_shop
//! ```
//!
//! What works: SeaORM and acemq share one pool, and the insert of a record, which
//! [`SqlOutbox::statement`](acemq_sql::SqlOutbox::statement) hands out as SQL and values, runs in a
//! transaction of SeaORM's like any other statement. What does not: `outbox.add` cannot have that
//! transaction, because SeaORM does not give away its connection; so it is on you to run the
//! statement on the transaction, and not on the pool. With Diesel it is the same, with
//! `diesel::sql_query` and one `bind::<Text, _>` a value.

#![expect(unreachable_pub, reason = "nothing is outside of a program")]

use acemq::{Exchange, OutboxRelay, OutboxStore as _, Queue, Topology};
use acemq_sql::{RecordStatement, SqliteOutbox};
use anyhow::Result;
use sea_orm::{
    ActiveModelTrait, ActiveValue::Set, ConnectionTrait, DatabaseConnection, DatabaseTransaction,
    DbBackend, EntityTrait, PaginatorTrait, Schema, Statement, TransactionTrait,
};
use serde::Serialize;
use sqlx::sqlite::SqlitePoolOptions;

/// The application's own table.
mod orders {
    use sea_orm::entity::prelude::*;

    #[sea_orm::model]
    #[derive(Clone, Debug, DeriveEntityModel)]
    #[sea_orm(table_name = "orders")]
    pub struct Model {
        #[sea_orm(primary_key, auto_increment = false)]
        pub id: String,
        pub item: String,
    }

    impl ActiveModelBehavior for ActiveModel {}
}

#[derive(Serialize)]
struct OrderPlaced<'a> {
    id: &'a str,
    item: &'a str,
}

#[tokio::main]
async fn main() -> Result<()> {
    let pool = SqlitePoolOptions::new().max_connections(1).connect("sqlite::memory:").await?;
    let outbox = SqliteOutbox::new(pool.clone());
    outbox.create_table_if_absent().await?; // in production, a migration does this
    let database = DatabaseConnection::from(pool);
    let backend = database.get_database_backend();
    let create = Schema::new(backend).create_table_from_entity(orders::Entity);
    database.execute(&create).await?;

    let mq = acemq::connect("memory://sea_orm_shop").await?;
    let topology = Topology::new()
        .exchange(Exchange::topic("shop"))
        .queue(Queue::new("shop.packing"))
        .bind("shop.packing", "shop", "order.placed");
    mq.declare(&topology).await?;

    let placed = mq.publisher("shop", "order.placed");
    for (id, item, paid) in [("o-1", "a book", true), ("o-2", "a lamp", false)] {
        // Both before the transaction opens: the first statement looks at the table, over the pool.
        let record = placed.record(&OrderPlaced { id, item }).id(id).await?;
        let event = outbox.statement(&record).await?;

        let transaction = database.begin().await?;
        let order = orders::ActiveModel { id: Set(id.to_owned()), item: Set(item.to_owned()) };
        order.insert(&transaction).await?;
        add(&transaction, event).await?;
        if paid {
            transaction.commit().await?;
        } else {
            transaction.rollback().await?; // and the record is gone with the order
        }
    }

    let relay = OutboxRelay::builder(&mq, outbox.clone()).build();
    let published = relay.drain().await?;
    let saved = orders::Entity::find().count(&database).await?;
    println!("{saved} order saved, {published} event published");
    anyhow::ensure!(outbox.pending_count().await? == 0, "an event is left in the outbox");
    relay.close().await?;
    Ok(mq.close().await?)
}

/// What `outbox.add` does, in a transaction of SeaORM's.
async fn add(transaction: &DatabaseTransaction, event: RecordStatement) -> Result<()> {
    let values = event.values.into_iter().map(Into::into);
    let insert = Statement::from_sql_and_values(DbBackend::Sqlite, event.sql, values);
    transaction.execute_raw(insert).await?;
    Ok(())
}
