//! An object store that speaks S3, inside the test's process.

use std::net::SocketAddr;

use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto::Builder,
};
use s3s::{
    auth::SimpleAuth,
    service::{S3Service, S3ServiceBuilder},
};
use s3s_fs::FileSystem;
use tempfile::TempDir;
use tokio::{
    net::TcpListener,
    task::{JoinHandle, JoinSet},
};

/// An S3 server of the test's own, with one empty bucket, on a port of its own.
///
/// It checks signatures, takes uploads in parts and keeps its objects in a folder, which goes with
/// it. Dropping it closes every connection.
#[derive(Debug)]
pub struct S3Server {
    address: SocketAddr,
    folder: TempDir,
    serving: JoinHandle<()>,
}

impl S3Server {
    /// The name of its bucket.
    pub const BUCKET: &str = "claims";
    /// The only access key it knows.
    pub const ACCESS_KEY: &str = "testkit";
    /// The secret that belongs to it.
    pub const SECRET_KEY: &str = "testkit-secret";

    /// Starts one.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime, and when it cannot start.
    pub async fn start() -> Self {
        let folder = TempDir::new().expect("a folder");
        std::fs::create_dir(folder.path().join(Self::BUCKET)).expect("a bucket");
        let objects = FileSystem::new(folder.path()).expect("a store in that folder");
        let mut builder = S3ServiceBuilder::new(objects);
        builder.set_auth(SimpleAuth::from_single(Self::ACCESS_KEY, Self::SECRET_KEY));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("a port");
        let serving = tokio::spawn(serve(listener, builder.build()));
        Self { address, folder, serving }
    }

    /// Its address, without a path.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The names of the objects in its bucket; those in folders with their path.
    ///
    /// # Panics
    ///
    /// When its folder cannot be read.
    pub fn objects(&self) -> Vec<String> {
        let bucket = self.folder.path().join(Self::BUCKET);
        let (mut names, mut folders) = (Vec::new(), vec![bucket.clone()]);
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).expect("a folder") {
                let path = entry.expect("an entry").path();
                if path.is_dir() {
                    folders.push(path);
                } else if let Ok(name) = path.strip_prefix(&bucket) {
                    names.push(name.to_string_lossy().into_owned());
                }
            }
        }
        names
    }
}

impl Drop for S3Server {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn serve(listener: TcpListener, service: S3Service) {
    // Dropped with this task, which closes what is open.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (socket, _) = accepted.expect("a connection");
                let service = service.clone();
                connections.spawn(async move {
                    let http = Builder::new(TokioExecutor::new());
                    // A client that goes away is no failure of the server.
                    let _ = http.serve_connection(TokioIo::new(socket), service).await;
                });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}
