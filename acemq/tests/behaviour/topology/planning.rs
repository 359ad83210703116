//! Plans: what is there, what is missing, and what is there in another form.

use std::time::Duration;

use acemq::{ErrorKind, Exchange, PlannedStatus, Queue, Topology, TopologyObject, TopologyPlan};
use serde_json::Value;

use crate::{on_every_broker, on_every_rabbitmq};

const SECOND: Duration = Duration::from_secs(1);

/// The plan's line of a queue.
fn status<'a>(plan: &'a TopologyPlan, queue: &str) -> &'a PlannedStatus {
    let named = |object: &TopologyObject| matches!(object, TopologyObject::Queue { name, .. } if name == queue);
    &plan.objects().iter().find(|item| named(&item.object)).unwrap().status
}

on_every_broker! {
    async fn a_plan_says_what_would_be_made_and_makes_nothing(broker: Broker) {
        let mq = broker.client().await;
        let (exchange, queue) = (broker.exchange("orders"), broker.name("new"));
        let topology = Topology::new()
            .exchange(Exchange::topic(&*exchange))
            .queue(Queue::new(&*queue).dead_letters())
            .bind(&*queue, &*exchange, "order.*");
        let plan = mq.plan(&topology).await.unwrap();
        let lines = plan.to_string();
        for line in [
            format!("  create   exchange {exchange} (topic)"),
            format!("  create   queue {queue} (quorum)"),
            format!("  create   queue {queue}.dlq (classic)"),
            format!("  create   binding {queue} <- {exchange} [order.*]"),
        ] {
            assert!(lines.lines().any(|it| it == line), "{lines}");
        }
        assert!(!mq.exchange_exists(&exchange).await.unwrap());
        assert!(mq.inspect_queue(&queue).await.unwrap().is_none());

        assert_eq!(mq.apply(&topology).await.unwrap(), plan);
        let again = mq.plan(&topology).await.unwrap();
        assert!(!again.has_drift());
        // Of bindings a broker does not tell.
        let changes: Vec<String> = again.changes().map(|it| it.object.to_string()).collect();
        assert!(changes.iter().all(|it| it.starts_with("binding ")), "{changes:?}");
        assert_eq!(*status(&again, &queue), PlannedStatus::Present);
        mq.validate(&topology).await.unwrap();
        let read: Value = serde_json::from_str(&again.to_json()).unwrap();
        assert_eq!(read["drift"], false);
        mq.close().await.unwrap();
    }

    async fn what_is_there_in_another_form_keeps_everything_from_being_applied(broker: Broker) {
        let mq = broker.client().await;
        let (first, second, other) = (broker.name("a"), broker.name("b"), broker.exchange("x"));
        mq.declare_queue(&Queue::new(&*second).classic().message_ttl(SECOND)).await.unwrap();
        mq.declare(&Exchange::topic(&*other).into()).await.unwrap();
        for (differing, argument) in [
            (
                Topology::from(Queue::new(&*second).classic().message_ttl(2 * SECOND)),
                "x-message-ttl",
            ),
            (Exchange::fanout(&*other).into(), "type"),
        ] {
            let topology = differing.queue(Queue::new(&*first));
            let plan = mq.plan(&topology).await.unwrap();
            assert!(plan.has_drift(), "{plan}");
            let drift = plan.objects().iter().find_map(|item| match &item.status {
                PlannedStatus::Drift { reason, .. } => Some(reason.clone()),
                _ => None,
            });
            assert!(drift.unwrap().contains(argument), "{plan}");
            for refused in [mq.apply(&topology).await.map(drop), mq.validate(&topology).await] {
                let error = refused.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Conflict);
                assert!(error.to_string().contains("DRIFT") && error.to_string().contains(argument), "{error}");
            }
            assert!(mq.inspect_queue(&first).await.unwrap().is_none());
        }
        mq.close().await.unwrap();
    }

    async fn what_is_missing_is_validated_by_name(broker: Broker) {
        let (mq, queue) = (broker.client().await, broker.name("missing"));
        let error = mq.validate(&Queue::new(&*queue).into()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.to_string().contains(&format!("create   queue {queue} (quorum)")), "{error}");
        assert!(mq.inspect_queue(&queue).await.unwrap().is_none());
        mq.close().await.unwrap();
    }

    async fn a_binding_to_what_is_nowhere_is_refused_and_one_to_what_others_declared_is_not(broker: Broker) {
        let mq = broker.client().await;
        let (exchange, queue) = (broker.exchange("theirs"), broker.name("ours"));
        let topology = Topology::new().queue(Queue::new(&*queue)).bind(&*queue, &*exchange, "k");
        let error = mq.apply(&topology).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.to_string().contains(&*exchange), "{error}");
        assert!(mq.inspect_queue(&queue).await.unwrap().is_none());
        mq.declare(&Exchange::direct(&*exchange).into()).await.unwrap();
        mq.apply(&topology).await.unwrap();
        let sent = mq.publisher::<u8>(&*exchange, "k").send(&1).await;
        sent.unwrap();
        mq.close().await.unwrap();
    }

    async fn what_contradicts_itself_is_refused_before_the_broker_is_asked(broker: Broker) {
        let mq = broker.client().await;
        let queue = broker.name("twice");
        let twice = Topology::new().queue(Queue::new(&*queue)).queue(Queue::new(&*queue).classic());
        for refused in [
            mq.plan(&twice).await.map(drop),
            mq.apply(&twice).await.map(drop),
            mq.validate(&twice).await,
        ] {
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::Config);
        }
        let two_ways = Queue::new(&*queue).dead_letters().argument("x-dead-letter-exchange", "x");
        let error = mq.plan(&two_ways.into()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        mq.close().await.unwrap();
    }
}

on_every_rabbitmq! {
    async fn an_exclusive_queue_of_somebody_else_is_unknown_and_no_error_of_a_plan(broker: Broker) {
        let (theirs, ours) = (broker.client().await, broker.client().await);
        let queue = broker.name("exclusive");
        theirs.declare_queue(&Queue::new(&*queue).exclusive()).await.unwrap();
        let topology = Topology::from(Queue::new(&*queue).classic());
        let plan = ours.plan(&topology).await.unwrap();
        assert!(matches!(status(&plan, &queue), PlannedStatus::Unknown { .. }), "{plan}");
        assert_eq!(ours.validate(&topology).await.unwrap_err().kind(), ErrorKind::Refused);
        ours.close().await.unwrap();
        theirs.close().await.unwrap();
    }
}

#[tokio::test]
async fn a_service_that_may_not_declare_validates_that_all_is_there() {
    let Some(broker) = testkit::OwnBroker::start().await else { return };
    let admin = acemq::connect(broker.url()).await.unwrap();
    let topology =
        Topology::new().exchange(Exchange::topic("orders")).queue(Queue::new("orders.new"));
    admin.apply(&topology).await.unwrap();
    let at = broker.url().split_once('@').unwrap().1.to_owned();
    broker.ctl(&["add_user", "ada", "secret"]).await;
    broker.ctl(&["set_permissions", "ada", "^$", ".*", ".*"]).await;
    let service = acemq::connect(format!("amqp://ada:secret@{at}")).await.unwrap();
    service.validate(&topology).await.unwrap();
    let plan = service.plan(&topology).await.unwrap();
    assert!(matches!(status(&plan, "orders.new"), PlannedStatus::Unknown { exists: true, .. }));
    let more = topology.queue(Queue::new("orders.old"));
    let error = service.validate(&more).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    service.close().await.unwrap();
    admin.close().await.unwrap();
}
