//! Comparing a topology with what a broker has.

use super::{
    Topology,
    objects::Objects,
    plan::{PlannedObject, PlannedStatus, TopologyObject, TopologyPlan},
};
use crate::{
    connection::Client,
    error::{Error, ErrorKind, Result},
    transport::{BindingSpec, Link},
};

impl Client {
    /// Says what [`apply`](Self::apply) would do, and changes nothing.
    ///
    /// It needs no management interface. Whether something exists is asked; whether it exists in this
    /// form is found out by declaring it as it is, which a broker takes or refuses without changing
    /// anything. (What another client deletes between the two would be made.) Of bindings a broker does
    /// not tell, so they are always [`Create`](PlannedStatus::Create).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> acemq::Result<()> {
    /// use acemq::{Exchange, Queue, Topology};
    ///
    /// let mq = acemq::connect("memory://plan-example").await?;
    /// mq.declare(&Queue::new("orders.new").into()).await?;
    /// let topology = Topology::new()
    ///     .exchange(Exchange::topic("orders"))
    ///     .queue(Queue::new("orders.new"))
    ///     .bind("orders.new", "orders", "order.*");
    /// assert_eq!(
    ///     mq.plan(&topology).await?.to_string(),
    ///     "topology plan:\n\
    ///      \x20 create   exchange orders (topic)\n\
    ///      \x20 present  queue orders.new (quorum)\n\
    ///      \x20 create   binding orders.new <- orders [order.*]"
    /// );
    /// # mq.close().await
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for what [`Topology::check`] finds; [`ErrorKind::NotFound`] for a binding
    /// to a queue or exchange that is neither in the topology nor at the broker; what the connection
    /// meets. What the broker refuses to answer is [`Unknown`](PlannedStatus::Unknown) in the plan.
    pub async fn plan(&self, topology: &Topology) -> Result<TopologyPlan> {
        topology.check()?;
        let objects = Objects::of(topology)?;
        let link = self.consuming_link().await?;
        let mut items = Vec::new();
        for exchange in &objects.exchanges {
            let exists = link.exchange_exists(&exchange.name).await;
            let same = async || link.declare_exchange(exchange).await;
            items.push(PlannedObject {
                status: status(exists, same).await?,
                object: exchange.into(),
            });
        }
        for queue in &objects.queues {
            let exists = link.inspect_queue(&queue.name).await.map(|queue| queue.is_some());
            let same = async || link.declare_queue(queue).await.map(drop);
            items.push(PlannedObject { status: status(exists, same).await?, object: queue.into() });
        }
        for binding in &objects.bindings {
            look_for_ends(&*link, &objects, binding).await?;
            items.push(PlannedObject { status: PlannedStatus::Create, object: binding.into() });
        }
        Ok(TopologyPlan { items })
    }

    /// Makes what is not there, unless something is there in another form: then nothing is made. Says
    /// what the plan was. Of what is [`Unknown`](PlannedStatus::Unknown) it finds out by declaring it,
    /// and ends there if that is refused.
    ///
    /// [`declare`](Self::declare) makes what it can up to the first conflict, without asking before.
    ///
    /// # Errors
    /// As [`plan`](Self::plan); [`ErrorKind::Conflict`] with the plan for what is there in another form;
    /// as [`declare`](Self::declare).
    ///
    /// # Cancellation
    /// Dropping the future leaves what was declared so far.
    pub async fn apply(&self, topology: &Topology) -> Result<TopologyPlan> {
        let plan = self.plan(topology).await?;
        if plan.has_drift() {
            return Err(differs("apply a topology", &plan));
        }
        self.declare(topology).await?;
        Ok(plan)
    }

    /// Says whether all exchanges and queues are there in this form, and changes nothing, for a service
    /// at its start. To one that may not declare them a broker only tells that they are there, which is
    /// then enough, and is logged. Bindings cannot be asked for.
    ///
    /// # Errors
    /// As [`plan`](Self::plan); [`ErrorKind::Conflict`] with the plan for what is there in another form;
    /// [`ErrorKind::NotFound`] with it for what is missing; [`ErrorKind::Refused`] with it for what
    /// could not be asked for.
    pub async fn validate(&self, topology: &Topology) -> Result<()> {
        let plan = self.plan(topology).await?;
        if plan.has_drift() {
            return Err(differs("validate a topology", &plan));
        }
        let unknown = |there: bool| {
            plan.objects().iter().filter(move |item| {
                matches!(item.status, PlannedStatus::Unknown { exists, .. } if exists == there)
            })
        };
        if unknown(false).next().is_some() {
            let what = "the broker does not say whether all of it is there; see who may see it";
            return Err(refused(ErrorKind::Refused, "validate a topology", what, &plan));
        }
        for item in unknown(true) {
            tracing::info!(
                "{} is there; in what form, the broker tells only those who may declare it",
                item.object
            );
        }
        let is_missing =
            |item: &PlannedObject| !matches!(item.object, TopologyObject::Binding { .. });
        if plan.changes().any(is_missing) {
            let what = "some of it is missing; apply it";
            return Err(refused(ErrorKind::NotFound, "validate a topology", what, &plan));
        }
        Ok(())
    }
}

/// What declaring something would do.
async fn status(exists: Result<bool>, same: impl AsyncFn() -> Result<()>) -> Result<PlannedStatus> {
    let is_there = exists.is_ok();
    let answer = match exists {
        Ok(false) => return Ok(PlannedStatus::Create),
        Ok(true) => same().await,
        Err(error) => Err(error),
    };
    let Err(error) = answer else { return Ok(PlannedStatus::Present) };
    let reason = error.to_string();
    match error.kind() {
        ErrorKind::Conflict => Ok(PlannedStatus::Drift { reason }),
        ErrorKind::Refused => Ok(PlannedStatus::Unknown { reason, exists: is_there }),
        _ => Err(error),
    }
}

/// Refuses a binding one of whose ends is nowhere.
async fn look_for_ends(link: &dyn Link, objects: &Objects, binding: &BindingSpec) -> Result<()> {
    let BindingSpec { queue, exchange, .. } = binding;
    let missing = |what: String| {
        Err(Error::new(
            ErrorKind::NotFound,
            format!(
                "bind queue \"{queue}\" to exchange \"{exchange}\": {what} is neither in this \
                 topology nor at the broker; add it"
            ),
        )
        .with_queue(&**queue)
        .with_exchange(&**exchange))
    };
    let declared = objects.exchanges.iter().any(|it| it.name == *exchange);
    if !declared && !link.exchange_exists(exchange).await? {
        return missing(format!("exchange \"{exchange}\""));
    }
    let declared = objects.queues.iter().any(|it| it.name == *queue);
    if !declared && link.inspect_queue(queue).await?.is_none() {
        return missing(format!("queue \"{queue}\""));
    }
    Ok(())
}

fn differs(doing: &str, plan: &TopologyPlan) -> Error {
    let what = "some of it is there in another form, and nothing was changed; delete what differs, \
                or declare what is there";
    refused(ErrorKind::Conflict, doing, what, plan)
}

fn refused(kind: ErrorKind, doing: &str, what: &str, plan: &TopologyPlan) -> Error {
    Error::new(kind, format!("{doing}: {what}\n{plan}"))
}
