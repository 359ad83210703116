//! Finding the one message that made the broker close the channel.
//!
//! The broker does not say which it was, and those before it may be on their queues already,
//! unconfirmed. Each is published again, alone and in order, and confirmed before the next: the
//! one during whose turn a channel closes is refused, all others go out.

use std::sync::Arc;

use lapin::{Channel, Confirmation, options::ConfirmSelectOptions};

use super::{
    error::{Reply, ends_channel_only, of_channel},
    limits,
    link::Core,
    publish::{lose, request},
    returns,
};
use crate::{
    error::{ErrorKind, Result},
    transport::{Outgoing, Publish, PublishFailure},
};

/// Gives every suspect its verdict, then an open confirm channel; `None` when the link has ended.
pub(super) async fn resolve(core: &Arc<Core>, suspects: Vec<Publish>) -> Option<Channel> {
    let mut channel: Option<Channel> = None;
    for suspect in suspects {
        let open = match channel.take() {
            Some(open) => Ok(open),
            None => confirm_channel(core).await,
        };
        match open {
            Ok(open) => {
                let verdict = alone(core, &open, &suspect.message).await;
                if open.status().connected() {
                    channel = Some(open);
                }
                suspect.answer.complete(verdict);
            }
            Err(reason) => lose(suspect, true, &reason),
        }
    }
    match channel {
        Some(channel) => Some(channel),
        None => confirm_channel(core).await.ok(),
    }
}

/// Opens a channel with confirms, for as long as the link lasts; otherwise says why it ended.
async fn confirm_channel(core: &Arc<Core>) -> Result<Channel, String> {
    let open = async {
        let channel = core.create_channel().await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        Ok::<_, lapin::Error>(channel)
    };
    tokio::select! {
        opened = open => match opened {
            Ok(channel) => Ok(channel),
            // Without a channel nothing can be published here any more.
            Err(error) => {
                core.give_up(&super::error::reason(&error));
                Err(core.ended().await)
            }
        },
        reason = core.ended() => Err(reason),
    }
}

/// Publishes one message with nothing else in flight, so that whatever comes is its answer.
async fn alone(
    core: &Arc<Core>,
    channel: &Channel,
    message: &Arc<Outgoing>,
) -> Result<(), PublishFailure> {
    let request = request(channel, message).map_err(PublishFailure::Refused)?;
    let confirm = tokio::select! {
        confirm = request => confirm,
        reason = core.ended() => return Err(PublishFailure::Lost { written: true, reason }),
    };
    match confirm {
        Ok(Confirmation::Ack(Some(returned)) | Confirmation::Nack(Some(returned))) => {
            Err(returns::failure(returned.reply_code, returned.reply_text.into()))
        }
        Ok(Confirmation::Ack(None)) => Ok(()),
        Ok(Confirmation::Nack(None)) => Err(PublishFailure::Rejected),
        Ok(Confirmation::NotRequested) => Err(PublishFailure::Lost {
            written: true,
            reason: "the channel does not confirm".to_owned(),
        }),
        Err(error) if ends_channel_only(&error) => {
            core.note_end(&error);
            let kind = of_channel("", &error).kind();
            // A channel that ends without a word leaves the message's fate open.
            if kind == ErrorKind::Lost {
                let reason = super::error::reason(&error);
                return Err(PublishFailure::Lost { written: true, reason });
            }
            let why =
                Reply::of(&error).map_or_else(|| error.to_string(), |reply| reply.text.to_owned());
            Err(PublishFailure::Refused(limits::about(message, kind, &why)))
        }
        Err(_) => Err(PublishFailure::Lost { written: true, reason: core.ended().await }),
    }
}
