//! What went wrong with TLS, in words that say what to do.

use std::io;

use rustls::{AlertDescription, CertificateError, Error as Rustls, InvalidMessage};

use crate::{
    error::{Error, ErrorKind},
    security::DevelopmentCertificate,
};

fn cause(error: &io::Error) -> Option<&Rustls> {
    error.get_ref()?.downcast_ref()
}

/// Whether a stream ended for a reason of TLS.
pub(in super::super) fn is_of_tls(error: &io::Error) -> bool {
    cause(error).is_some()
}

/// An error of agreeing on TLS; `name` is the one that the certificate has to hold.
pub(in super::super) fn of_tls(peer: &str, name: &str, error: &io::Error) -> Error {
    let action = format!("agree on TLS with {peer}");
    let (kind, why) = match (cause(error), error.kind()) {
        (Some(cause), _) => (ErrorKind::Tls, advice(cause, name)),
        (
            None,
            io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::UnexpectedEof,
        ) => {
            let why = "the peer closed the connection; is this its TLS port, usually 5671?";
            (ErrorKind::Connect, why.to_owned())
        }
        (None, _) => (ErrorKind::Connect, error.to_string()),
    };
    let quoted = why.contains(&error.to_string());
    let source = io::Error::new(error.kind(), error.to_string());
    let failed = Error::new(kind, format!("{action}: {why}"));
    if quoted { failed.with_quoted_source(source) } else { failed.with_source(source) }
}

fn advice(error: &Rustls, name: &str) -> String {
    match error {
        Rustls::InvalidCertificate(problem) => of_certificate(problem, name),
        Rustls::AlertReceived(alert) => of_alert(*alert),
        Rustls::InvalidMessage(InvalidMessage::InvalidContentType) => {
            "the peer does not speak TLS there; is this its TLS port, usually 5671?".to_owned()
        }
        Rustls::PeerIncompatible(why) => format!(
            "the two sides have no version or cipher of TLS in common ({why:?}); let the broker take TLS 1.2 or 1.3, and see whether Tls::only_tls_1_3 is wanted"
        ),
        error => format!("{error}; is this the broker's TLS port?"),
    }
}

fn of_certificate(problem: &CertificateError, name: &str) -> String {
    match problem {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "the broker's certificate has expired; renew it at the broker, and see whether this machine's clock is right".to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "the broker's certificate is not valid yet; see whether the clocks of both machines are right".to_owned()
        }
        CertificateError::NotValidForName => wrong_name(name, &[]),
        CertificateError::NotValidForNameContext { presented, .. } => wrong_name(name, presented),
        CertificateError::UnknownIssuer => {
            "the broker's certificate is by an authority that is not trusted here; give its file by Tls::authority_file, or as cacertfile in the address".to_owned()
        }
        CertificateError::Revoked => {
            "the broker's certificate has been revoked; give the broker another".to_owned()
        }
        CertificateError::Other(other) if other.0.is::<DevelopmentCertificate>() => {
            other.0.to_string()
        }
        CertificateError::BadSignature => {
            "the broker's certificate is signed with another key than that of the authority of that name that is trusted here; see whether its file is the present one".to_owned()
        }
        problem => format!("the broker's certificate cannot be taken: {problem}"),
    }
}

fn wrong_name(name: &str, presented: &[String]) -> String {
    let holds = match presented {
        [] => String::new(),
        names => format!(", but for {}", names.join(", ")),
    };
    format!(
        "the broker's certificate is not for {name:?}{holds}; connect by a name that it holds, or say which it is to hold by Tls::server_name"
    )
}

fn of_alert(alert: AlertDescription) -> String {
    match alert {
        AlertDescription::CertificateRequired => {
            "the broker demands a client certificate; give one by Tls::client_certificate_files, or as certfile and keyfile in the address".to_owned()
        }
        AlertDescription::ProtocolVersion => {
            "the broker takes none of the versions of TLS that this side takes; let it take 1.2 or 1.3, and see whether Tls::only_tls_1_3 is wanted".to_owned()
        }
        AlertDescription::HandshakeFailure => {
            "the broker refused: the two sides have no cipher in common, or it demands a client certificate; give one by Tls::client_certificate_files".to_owned()
        }
        AlertDescription::BadCertificate
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::CertificateRevoked
        | AlertDescription::CertificateExpired
        | AlertDescription::CertificateUnknown
        | AlertDescription::UnknownCA
        | AlertDescription::AccessDenied => format!(
            "the broker does not take the client certificate ({alert:?}); it has to be in its time, and by an authority in the broker's cacertfile"
        ),
        alert => format!("the broker ended it with {alert:?}; its log says why"),
    }
}
