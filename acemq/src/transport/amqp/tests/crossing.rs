//! What crosses on its way, which a real broker shows only now and then.

use super::{
    peer::{
        ACK, CANCEL, CANCEL_OK, CLOSE, CLOSE_OK, CONSUME, DECLARE, DECLARE_OK, PUBLISH, Peer, QOS,
        ack, close, method,
    },
    *,
};
use crate::{error::Error, transport::LinkState};

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

#[tokio::test]
async fn settlements_on_the_way_of_the_cancelling_are_made_sure_of_as_those_after_it() {
    let (link, mut peer) = Peer::dialled(false).await;
    let (mut channel, number) = consume(&link, &mut peer).await;
    let settler = channel.settler();
    let script = async {
        peer.hear(CANCEL).await;
        for tag in 1..=40 {
            settler.ack(tag);
        }
        peer.say(&method(number, CANCEL_OK, &[0])).await;
        for _ in 1..=40 {
            peer.hear(ACK).await;
        }
        peer.answer(QOS, &[]).await;
    };
    tokio::join!(channel.cancel(), script).0.unwrap();
    let script = async {
        // One for each pause, and the last.
        for _ in 0..6 {
            peer.answer(QOS, &[]).await;
        }
        peer.answer(CLOSE, &[]).await;
    };
    tokio::join!(channel.close(), script);
}

#[tokio::test]
async fn messages_to_an_exchange_that_is_asked_for_keep_their_order_when_the_channel_closes() {
    let (link, mut peer) = Peer::dialled(true).await;
    let first = send(&link, message("events", "1", "m-1"));
    let asked = peer.open_channel().await;
    peer.hear(DECLARE).await;
    let suspect = send(&link, message("", "orders", "m-2"));
    peer.hear(PUBLISH).await;
    peer.say(&close(1, 406, "PRECONDITION_FAILED")).await;
    peer.hear(CLOSE_OK).await;
    let second = send(&link, message("events", "2", "m-3"));
    peer.say(&method(asked, DECLARE_OK, &[])).await;
    peer.open_again().await;
    peer.hear(PUBLISH).await;
    peer.say(&ack(1)).await;
    for key in ["1", "2"] {
        let published = peer.hear(PUBLISH).await;
        let to = format!("\u{6}events\u{1}{key}");
        assert!(String::from_utf8_lossy(&published.payload).contains(&to), "{published:?}");
    }
    peer.say(&ack(3)).await;
    for pending in [first, suspect, second] {
        verdict(pending).await.unwrap();
    }
}

/// What becomes of a message that was written before the channel was closed, and that the broker
/// refuses for this reason when it is its turn.
async fn refused_in_its_turn(code: u16, text: &str) -> Error {
    let (link, mut peer) = Peer::dialled(true).await;
    let sent = send(&link, message("", "orders", "m-1"));
    for text in ["PRECONDITION_FAILED", text] {
        peer.hear(PUBLISH).await;
        let code = if text == "PRECONDITION_FAILED" { 406 } else { code };
        peer.say(&close(1, code, text)).await;
        peer.hear(CLOSE_OK).await;
        peer.open_again().await;
    }
    let PublishFailure::Refused(error) = verdict(sent).await.unwrap_err() else { panic!() };
    error
}

#[tokio::test]
async fn a_message_that_was_written_before_it_was_refused_may_have_been_published() {
    // What is there, and who may use it, may have changed in between.
    for (code, text, maybe) in [
        (404, "NOT_FOUND", true),
        (403, "ACCESS_REFUSED", true),
        (406, "PRECONDITION_FAILED - invalid expiration", false),
    ] {
        let error = refused_in_its_turn(code, text).await;
        assert_eq!(error.may_have_been_published(), maybe, "{error:?}");
    }

    let (link, mut peer) = Peer::dialled(true).await;
    let sent = send(&link, message("events", "key", "m-1"));
    peer.open_channel().await;
    peer.answer(DECLARE, &[]).await;
    peer.hear(PUBLISH).await;
    peer.say(&close(1, 404, "NOT_FOUND")).await;
    peer.hear(CLOSE_OK).await;
    peer.open_again().await;
    let asked = peer.open_channel().await;
    peer.hear(DECLARE).await;
    peer.say(&close(asked, 404, "NOT_FOUND")).await;
    let PublishFailure::Refused(error) = verdict(sent).await.unwrap_err() else { panic!() };
    assert!(error.may_have_been_published(), "{error:?}");
    assert!(error.to_string().contains("may have been published"), "{error}");
}

#[tokio::test]
async fn a_reset_connection_says_so() {
    let (link, peer) = Peer::dialled(false).await;
    let mut state = link.state();
    peer.socket.set_zero_linger().unwrap();
    drop(peer);
    let ended = state.wait_for(|state| matches!(state, LinkState::Ended(_)));
    let ended = tokio::time::timeout(BOUND, ended).await.unwrap().unwrap().clone();
    let LinkState::Ended(reason) = ended else { unreachable!() };
    assert!(reason.contains("reset"), "{reason}");
}
