//! What crosses on its way, which a real broker shows only now and then.

use super::{
    peer::{CLOSE, CLOSE_OK, CONSUME, DECLARE, Peer, QOS, close, method},
    *,
};

async fn consume(link: &Arc<dyn Link>, peer: &mut Peer) -> (Box<dyn ConsumeChannel>, u16) {
    let accept = async {
        let number = peer.open_channel().await;
        peer.answer(QOS, &[]).await;
        peer.answer(CONSUME, &[0]).await;
        number
    };
    tokio::join!(subscribe(link, "orders", 100), accept)
}

#[tokio::test]
async fn a_channel_that_both_sides_close_at_once_is_closed_on_both_sides() {
    let (link, mut peer) = Peer::dialled(false).await;
    let (channel, number) = consume(&link, &mut peer).await;
    drop(channel);
    peer.hear(CLOSE).await;
    let mut both = close(number, 406, "PRECONDITION_FAILED");
    both.extend(method(number, CLOSE_OK, &[]));
    peer.say(&both).await;
    // Without it the broker would take no more of what comes under the number.
    assert_eq!(peer.hear(CLOSE_OK).await.channel, number);
    let exists = link.exchange_exists("somewhere");
    let answer = async {
        peer.open_channel().await;
        peer.answer(DECLARE, &[]).await;
    };
    assert!(tokio::join!(exists, answer).0.unwrap());
}
