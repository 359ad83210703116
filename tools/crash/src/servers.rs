//! The broker and the database: shared ones by URL, or the run's own, which may be restarted.

use anyhow::{Result, ensure};
use testkit::{BrokerOptions, BrokerVersion, OwnBroker, OwnPostgres};

use crate::{diary::Diary, scenario::Scenario};

pub(crate) struct Servers {
    pub(crate) broker: Server<OwnBroker>,
    pub(crate) database: Server<OwnPostgres>,
}

/// A server of the run's own, or the URL of one that is everybody's.
pub(crate) enum Server<S> {
    Own(Box<S>),
    Shared(String),
}

impl Servers {
    /// Starts what is to be the run's own; `None` where that is not installed, which has been
    /// said then.
    pub(crate) async fn start(
        scenario: Scenario,
        broker: &str,
        database: &str,
        diary: &Diary,
    ) -> Result<Option<Self>> {
        let versions = [("own", BrokerVersion::V3), ("own4", BrokerVersion::V4)];
        let version = versions.into_iter().find(|(name, _)| *name == broker);
        ensure!(
            scenario != Scenario::Broker || version.is_some(),
            "this scenario kills the broker; it needs --broker own or --broker own4"
        );
        ensure!(
            scenario != Scenario::Database || database == "own",
            "this scenario kills the database; it needs --database own"
        );
        let broker = match version {
            Some((_, version)) => {
                let options = BrokerOptions { version, ..BrokerOptions::default() };
                let Some(own) = OwnBroker::start_with(options).await else { return Ok(None) };
                Server::Own(Box::new(own))
            }
            None => Server::Shared(broker.to_owned()),
        };
        let database = match database {
            "own" => {
                let Some(own) = OwnPostgres::start().await else { return Ok(None) };
                Server::Own(Box::new(own))
            }
            "sqlite" => {
                let file = diary.folder().join("crash.db");
                Server::Shared(format!("sqlite://{}?mode=rwc", file.display()))
            }
            url => Server::Shared(url.to_owned()),
        };
        Ok(Some(Self { broker, database }))
    }

    pub(crate) fn broker_url(&self) -> String {
        match &self.broker {
            Server::Own(own) => own.url(),
            Server::Shared(url) => url.clone(),
        }
    }

    pub(crate) fn database_url(&self) -> String {
        match &self.database {
            Server::Own(own) => own.url(),
            Server::Shared(url) => url.clone(),
        }
    }
}

impl Servers {
    /// Keeps what the run's own broker had to say, which goes with the broker.
    pub(crate) fn keep_logs(&self, diary: &Diary) -> Result<()> {
        match &self.broker {
            Server::Own(own) => diary.keep("rabbitmq.log", [own.log()]),
            Server::Shared(_) => Ok(()),
        }
    }
}

/// What can be killed, shut down and started again.
pub(crate) trait Restarts {
    const NAME: &'static str;
    fn kill(&mut self);
    fn stop(&mut self) -> impl Future<Output = ()>;
    fn restart(&mut self) -> impl Future<Output = ()>;
}

impl Restarts for OwnBroker {
    const NAME: &'static str = "broker";

    fn kill(&mut self) {
        Self::kill(self);
    }

    async fn stop(&mut self) {
        Self::stop(self).await;
    }

    async fn restart(&mut self) {
        Self::restart(self).await;
    }
}

impl Restarts for OwnPostgres {
    const NAME: &'static str = "database";

    fn kill(&mut self) {
        Self::kill(self);
    }

    async fn stop(&mut self) {
        Self::stop(self).await;
    }

    async fn restart(&mut self) {
        Self::restart(self).await;
    }
}
