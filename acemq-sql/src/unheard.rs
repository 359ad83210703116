//! Statements whose text holds messages, and which no log should hold therefore.

use tracing::{instrument::WithSubscriber, subscriber::NoSubscriber};

/// Runs a statement without what sqlx says of it: it would log the text, messages and all, of each
/// at debug level and of every slow one as a warning. Nothing keeps it from doing so where only the
/// `log` facade listens.
pub(crate) async fn unheard<T>(statement: impl Future<Output = T>) -> T {
    if tracing::dispatcher::has_been_set() {
        statement.with_subscriber(NoSubscriber::default()).await
    } else {
        statement.await
    }
}
