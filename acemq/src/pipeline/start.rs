//! The start of a pipeline: declare, then consume.

use std::{collections::HashSet, fmt, future::IntoFuture, sync::Arc};

use super::{
    builder::Steps,
    handler::MakeConsumer,
    name,
    options::StepOptions,
    plan::Plan,
    running::Pipeline,
    step::{PipelineStep, StepCore},
};
use crate::{
    connection::Client,
    counted::counted,
    error::{Conflict, Error, ErrorKind, Result},
    topology::{Exchange, Queue, Topology},
    transport::BoxFuture,
};

/// A pipeline that starts when it is awaited, from
/// [`PipelineBuilder::start`](super::PipelineBuilder::start).
#[must_use = "a pipeline starts by awaiting it"]
pub struct StartPipeline<In>(Steps<In>);

impl<In> StartPipeline<In> {
    pub(super) fn new(steps: Steps<In>) -> Self {
        Self(steps)
    }

    async fn run(self) -> Result<Pipeline<In>> {
        let Steps { client, name, declares, like_family, entry, declared } = self.0;
        let names = check(&name, &declared)?;
        let entry = entry.ok_or_else(|| refused(&name, "it has no step"))?;
        let plan = Arc::new(Plan::new(client, name, names, declares));
        if declares {
            declare(&plan, like_family).await?;
        }
        let labels: Vec<String> = declared.iter().map(|(options, _)| options.label()).collect();
        tracing::info!(
            "pipeline {} declared with {}: {}",
            plan.name,
            counted(labels.len(), "step"),
            labels.join(" | ")
        );
        let mut steps: Vec<PipelineStep> = Vec::with_capacity(declared.len());
        for (position, (options, make)) in declared.into_iter().enumerate() {
            match start(&plan, options, Some(position), make).await {
                Ok(step) => steps.push(step),
                Err(error) => {
                    let closing = steps.iter().map(PipelineStep::close);
                    // What cannot be closed in time is stopped; the error is the reason for it.
                    let _ = futures_util::future::join_all(closing).await;
                    return Err(error);
                }
            }
        }
        Ok(Pipeline::new(plan, entry, steps))
    }
}

/// A step that starts when it is awaited, from
/// [`PipelineBuilder::join`](super::PipelineBuilder::join).
#[must_use = "a step starts by awaiting it"]
pub struct StartStep {
    client: Client,
    pipeline: String,
    declares: bool,
    options: StepOptions,
    make: MakeConsumer,
}

impl StartStep {
    pub(super) fn new(
        client: Client,
        pipeline: String,
        declares: bool,
        options: StepOptions,
        make: MakeConsumer,
    ) -> Self {
        Self { client, pipeline, declares, options, make }
    }

    async fn run(self) -> Result<PipelineStep> {
        let Self { client, pipeline, declares, options, make } = self;
        check_names(&pipeline, [&*options.name])?;
        let plan = Arc::new(Plan::new(client, pipeline, Vec::new(), declares));
        start(&plan, options, None, make).await
    }
}

async fn start(
    plan: &Arc<Plan>,
    options: StepOptions,
    position: Option<usize>,
    make: MakeConsumer,
) -> Result<PipelineStep> {
    let core = Arc::new(StepCore::new(plan, options, position));
    let consumers = make(Arc::clone(&core)).group(core.options.consumers).await?;
    Ok(PipelineStep::new(core, consumers))
}

/// The steps' names, if they can be told apart and go over the wire.
fn check(pipeline: &str, declared: &[(StepOptions, MakeConsumer)]) -> Result<Vec<String>> {
    let names = || declared.iter().map(|(options, _)| &*options.name);
    check_names(pipeline, names())?;
    let mut seen = HashSet::new();
    match names().find(|name| !seen.insert(*name)) {
        Some(twice) => Err(refused(pipeline, &format!("two of its steps are called \"{twice}\""))),
        None => Ok(names().map(str::to_owned).collect()),
    }
}

fn check_names<'a>(pipeline: &str, steps: impl IntoIterator<Item = &'a str>) -> Result<()> {
    if pipeline.is_empty() {
        return Err(refused(pipeline, "it has no name, which is also its exchange's"));
    }
    let action = format!("build the pipeline \"{pipeline}\"");
    steps.into_iter().try_for_each(|step| name::check(&action, step))
}

fn refused(pipeline: &str, why: &str) -> Error {
    Error::new(ErrorKind::Config, format!("build the pipeline \"{pipeline}\": {why}"))
}

/// Declares the exchange, and the steps' queues with their bindings.
async fn declare(plan: &Plan, like_family: bool) -> Result<()> {
    let client = &plan.client;
    client.declare(&Exchange::direct(&*plan.name).into()).await?;
    for step in &plan.steps {
        let queue = plan.queue_of(step);
        if like_family {
            declare_like_family(client, &queue).await?;
        } else {
            declare_with_dead_letters(client, &queue).await?;
        }
        client.declare(&Topology::new().bind(queue, &*plan.name, &**step)).await?;
    }
    Ok(())
}

/// Declares a step's queue with the dead-letter target that the family's other libraries leave out.
/// One that was declared as they do is used as it is.
async fn declare_with_dead_letters(client: &Client, queue: &str) -> Result<()> {
    let Err(error) = client.declare_queue(&Queue::new(queue).dead_letters()).await else {
        return Ok(());
    };
    let of_target = |conflict: &Conflict| conflict.argument.starts_with("x-dead-letter-");
    if error.conflict().is_some_and(of_target) {
        declare_like_family(client, queue).await
    } else {
        Err(error)
    }
}

async fn declare_like_family(client: &Client, queue: &str) -> Result<()> {
    client.consuming_link().await?.declare_queue(&Queue::new(queue).spec).await?;
    tracing::warn!(
        queue,
        "the queue of this pipeline's step has no dead-letter target, as in the family's other \
         libraries: a message that comes back more often than the queue's delivery limit (20 by \
         default from RabbitMQ 4.0) is dropped, unless a policy says where it goes"
    );
    Ok(())
}

impl<In: 'static> IntoFuture for StartPipeline<In> {
    type Output = Result<Pipeline<In>>;
    type IntoFuture = BoxFuture<'static, Result<Pipeline<In>>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

impl IntoFuture for StartStep {
    type Output = Result<PipelineStep>;
    type IntoFuture = BoxFuture<'static, Result<PipelineStep>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

impl<In> fmt::Debug for StartPipeline<In> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StartPipeline").field("name", &self.0.name).finish_non_exhaustive()
    }
}

impl fmt::Debug for StartStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StartStep")
            .field("pipeline", &self.pipeline)
            .field("step", &self.options.label())
            .finish_non_exhaustive()
    }
}
