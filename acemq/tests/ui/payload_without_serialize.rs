struct OrderPlaced;

async fn place(mq: &acemq::Client) -> acemq::Result<()> {
    let placed = mq.publisher::<OrderPlaced>("orders", "order.placed");
    placed.send(&OrderPlaced).await?;
    Ok(())
}

fn main() {}
