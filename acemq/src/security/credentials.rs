//! Logins, and where they come from.

use std::{env, fmt, io, panic::AssertUnwindSafe, path::PathBuf, sync::Arc};

use futures_util::{FutureExt as _, future::BoxFuture};

use crate::error::{BoxError, Error, ErrorKind, Result};

/// A login: a password, and the user unless that is the address's.
///
/// ```
/// use acemq::Credentials;
///
/// let login = Credentials::new("orders", "s3cret");
/// assert_eq!(login.user(), Some("orders"));
/// assert!(!format!("{login:?}").contains("s3cret"));
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    user: Option<String>,
    password: String,
}

impl Credentials {
    /// A user and the password.
    pub fn new(user: impl Into<String>, password: impl Into<String>) -> Self {
        Self { user: Some(user.into()), password: password.into() }
    }

    /// A password for the user that the address names, which is `guest` where it names none.
    pub fn password_only(password: impl Into<String>) -> Self {
        Self { user: None, password: password.into() }
    }

    /// The user; `None` if that is the address's.
    #[must_use]
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    pub(crate) fn password(&self) -> &str {
        &self.password
    }

    /// Reads what a file of credentials holds: `password` or `user:password`, without white space
    /// at its end.
    fn parse(text: &str) -> Self {
        let text = text.trim_end();
        match text.split_once(':') {
            Some((user, password)) => Self::new(user, password),
            None => Self::password_only(text),
        }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("user", &self.user).finish_non_exhaustive()
    }
}

/// Where a client's login comes from. It is asked each time a connection is made, so that a
/// password that was changed is used from the next one on, and stands above what the address
/// holds.
///
/// Given to [`Connect::credentials`](crate::Connect::credentials), which takes [`Credentials`] as
/// well. A provider that fails fails the attempt: [`connect`](crate::connect()) returns the error,
/// and a connection that was lost asks again at its next attempt.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> acemq::Result<()> {
/// use acemq::{Credentials, CredentialsProvider};
///
/// # async fn lease_from_vault() -> Result<(String, String), std::io::Error> {
/// #     Ok(("orders-7".into(), "s3cret".into()))
/// # }
/// let from_vault = CredentialsProvider::function(|| async {
///     let (user, password) = lease_from_vault().await?;
///     Ok(Credentials::new(user, password))
/// });
/// let mq = acemq::connect("memory://credentials-example").credentials(from_vault).await?;
/// mq.close().await
/// # }
/// ```
#[derive(Clone)]
pub struct CredentialsProvider(Source);

type Function = dyn Fn() -> BoxFuture<'static, Result<Credentials, BoxError>> + Send + Sync;

#[derive(Clone)]
enum Source {
    Environment { user: Option<String>, password: String },
    File(PathBuf),
    Fixed(Credentials),
    Function(Arc<Function>),
}

impl CredentialsProvider {
    /// Always these.
    #[must_use]
    pub fn fixed(credentials: Credentials) -> Self {
        Self(Source::Fixed(credentials))
    }

    /// The values of two environment variables.
    pub fn environment(
        user_variable: impl Into<String>,
        password_variable: impl Into<String>,
    ) -> Self {
        let user = Some(user_variable.into());
        Self(Source::Environment { user, password: password_variable.into() })
    }

    /// The value of an environment variable, for the user that the address names.
    pub fn environment_password(password_variable: impl Into<String>) -> Self {
        Self(Source::Environment { user: None, password: password_variable.into() })
    }

    /// What a file holds, read each time: `password`, for the user that the address names, or
    /// `user:password`. White space at its end is left out. A password with a colon in it is
    /// written with its user.
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self(Source::File(path.into()))
    }

    /// What a function returns. Each call is bounded by
    /// [`connect_timeout`](crate::Connect::connect_timeout), after which its future is dropped.
    ///
    /// Where its error is an [`Error`], that error's kind is the attempt's; any other is taken for
    /// a store of secrets that cannot be reached ([`ErrorKind::Connect`]).
    pub fn function<F, Fut>(function: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Credentials, BoxError>> + Send + 'static,
    {
        Self(Source::Function(Arc::new(move || function().boxed())))
    }

    /// Asks for the login of one attempt.
    pub(crate) async fn ask(&self) -> Result<Credentials> {
        let credentials = match &self.0 {
            Source::Environment { user, password } => Credentials {
                user: user.as_deref().map(variable).transpose()?,
                password: variable(password)?,
            },
            Source::File(path) => {
                let from = path.clone();
                let read = tokio::task::spawn_blocking(move || std::fs::read_to_string(from));
                let text = read.await.map_err(io::Error::other).flatten().map_err(|error| {
                    let why = format!(
                        "ask for the login: the file {}: {error}; write password or user:password into it, and let this process read it",
                        path.display()
                    );
                    Error::new(ErrorKind::Authentication, why).with_quoted_source(error)
                })?;
                if text.trim_end().is_empty() {
                    let why = format!(
                        "ask for the login: the file {} is empty; write password or user:password into it",
                        path.display()
                    );
                    return Err(Error::new(ErrorKind::Authentication, why));
                }
                Credentials::parse(&text)
            }
            Source::Fixed(credentials) => credentials.clone(),
            Source::Function(function) => asked(&**function).await?,
        };
        let texts = [Some(&*credentials.password), credentials.user()];
        if texts.into_iter().flatten().any(|text| text.contains('\0')) {
            let why = "ask for the login: it holds a NUL, which no login can carry";
            return Err(Error::new(ErrorKind::Authentication, why));
        }
        Ok(credentials)
    }
}

fn variable(name: &str) -> Result<String> {
    env::var(name).map_err(|error| {
        let why = match error {
            env::VarError::NotPresent => "is not set",
            // Not the error itself, which shows the value.
            env::VarError::NotUnicode(_) => "is not UTF-8",
        };
        let text = format!("ask for the login: the environment variable {name} {why}");
        Error::new(ErrorKind::Authentication, text)
    })
}

/// A function of the user's own runs in the task that keeps a connection, which must not end by it.
async fn asked(function: &Function) -> Result<Credentials> {
    let answer = AssertUnwindSafe(async { function().await }).catch_unwind().await;
    let error = match answer {
        Ok(Ok(credentials)) => return Ok(credentials),
        Ok(Err(error)) => error,
        Err(_) => "the function panicked".into(),
    };
    let kind = error.downcast_ref::<Error>().map_or(ErrorKind::Connect, Error::kind);
    Err(Error::new(kind, format!("ask for the login: {error}")).with_quoted_source(error))
}

impl From<Credentials> for CredentialsProvider {
    fn from(credentials: Credentials) -> Self {
        Self::fixed(credentials)
    }
}

impl fmt::Debug for CredentialsProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("CredentialsProvider");
        match &self.0 {
            Source::Environment { user, password } => {
                out.field("user_variable", user).field("password_variable", password)
            }
            Source::File(path) => out.field("file", path),
            Source::Fixed(credentials) => out.field("user", &credentials.user),
            Source::Function(_) => &mut out,
        };
        out.finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_holds_a_password_or_a_user_and_a_password() {
        for (text, user, password) in [
            ("s3cret", None, "s3cret"),
            ("s3cret\n", None, "s3cret"),
            ("ada:s3cret \r\n\n", Some("ada"), "s3cret"),
            ("ada:with:colons", Some("ada"), "with:colons"),
            (" leading", None, " leading"),
            ("", None, ""),
        ] {
            let read = Credentials::parse(text);
            assert_eq!((read.user(), read.password()), (user, password), "{text:?}");
        }
    }

    #[test]
    fn no_password_is_shown() {
        let fixed = Credentials::new("ada", "hush");
        let provider = CredentialsProvider::from(fixed.clone());
        for shown in [format!("{fixed:?}"), format!("{provider:?}")] {
            assert!(shown.contains("ada") && !shown.contains("hush"), "{shown}");
        }
    }

    #[tokio::test]
    async fn a_file_is_read_each_time_and_a_missing_one_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("login");
        let provider = CredentialsProvider::file(&path);
        let error = provider.ask().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Authentication);
        assert!(error.to_string().contains("login"), "{error}");
        std::fs::write(&path, " \n").unwrap();
        let error = provider.ask().await.unwrap_err();
        assert!(error.to_string().contains("is empty"), "{error}");
        std::fs::write(&path, "ada:one\n").unwrap();
        assert_eq!(provider.ask().await.unwrap(), Credentials::new("ada", "one"));
        std::fs::write(&path, "two").unwrap();
        assert_eq!(provider.ask().await.unwrap(), Credentials::password_only("two"));
    }

    #[tokio::test]
    async fn an_environment_variable_that_is_missing_is_named() {
        // Cargo sets these.
        let provider = CredentialsProvider::environment("CARGO_PKG_NAME", "CARGO_PKG_LICENSE");
        assert_eq!(provider.ask().await.unwrap(), Credentials::new("acemq", "Apache-2.0"));
        let provider = CredentialsProvider::environment_password("ACEMQ_TEST_NO_SUCH_VARIABLE");
        let error = provider.ask().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Authentication);
        assert!(error.to_string().contains("ACEMQ_TEST_NO_SUCH_VARIABLE"), "{error}");
    }

    #[tokio::test]
    async fn a_function_may_fail_panic_or_say_what_its_error_is() {
        let failing = CredentialsProvider::function(|| async { Err("no vault".into()) });
        let error = failing.ask().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Connect);
        assert!(error.to_string().contains("no vault"), "{error}");

        let refused = CredentialsProvider::function(|| async {
            Err(Error::new(ErrorKind::Refused, "sealed").into())
        });
        assert_eq!(refused.ask().await.unwrap_err().kind(), ErrorKind::Refused);

        let panicking = CredentialsProvider::function(|| async { panic!("hush") });
        let error = panicking.ask().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Connect);
        assert!(!error.to_string().contains("hush"), "{error}");

        let nul = CredentialsProvider::fixed(Credentials::new("ada", "hu\0sh"));
        assert_eq!(nul.ask().await.unwrap_err().kind(), ErrorKind::Authentication);
    }
}
