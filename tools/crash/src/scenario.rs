//! Who is killed and what is restarted.

use clap::ValueEnum;

use crate::role::Role;

/// What is done to a system of two writers, three relays and two consumers while it works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scenario {
    /// The writers are killed: no half of a transaction is ever seen.
    Writers,
    /// The relays are killed, several at once: what has committed is published all the same.
    Relays,
    /// The consumers are killed: every order has its effect.
    Consumers,
    /// The broker is killed and shut down. Needs `--broker own` or `own4`.
    Broker,
    /// The database is killed and shut down. Needs `--database own`.
    Database,
    /// All of it at once, as far as the servers are the run's own.
    Everything,
}

impl Scenario {
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// The roles whose processes are killed.
    pub(crate) fn victims(self) -> &'static [Role] {
        match self {
            Self::Writers => &[Role::Writer],
            Self::Relays => &[Role::Relay],
            Self::Consumers => &[Role::Consumer],
            Self::Broker | Self::Database => &[],
            Self::Everything => &Role::ALL,
        }
    }

    pub(crate) fn restarts_broker(self) -> bool {
        matches!(self, Self::Broker | Self::Everything)
    }

    pub(crate) fn restarts_database(self) -> bool {
        matches!(self, Self::Database | Self::Everything)
    }
}
