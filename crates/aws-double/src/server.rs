//! The socket, and what every request goes through.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{HeaderMap, Method, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::answer::{Answer, Answered, Protocol, Refusal, write};
use crate::blocks::BLOCK;
use crate::clock::Delays;
use crate::fault::{Fault, FaultKind, due};
use crate::machine::Machine;
use crate::params::Params;
use crate::signature::Scope;
use crate::world::{Image, SeedImage, Snapshot, Volume, World};
use crate::{ebs, ec2, metadata, services};

/// A running double. It ends when it is dropped.
pub struct Double {
    shared: Arc<Shared>,
    address: SocketAddr,
    server: JoinHandle<()>,
}

/// What all connections share.
pub(crate) struct Shared {
    world: Mutex<World>,
    faults: Mutex<Vec<Fault>>,
    requests: Mutex<Vec<Request>>,
}

/// A request that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// When, since the double was started.
    pub at: jiff::Timestamp,
    /// By whom.
    pub account: String,
    /// Where.
    pub region: String,
    /// `ec2`, `ebs`.
    pub service: String,
    /// `RegisterImage`.
    pub operation: String,
    /// Its parameters, as they stood in the form or the path.
    pub parameters: BTreeMap<String, String>,
    /// `200`, or the code of the error.
    pub outcome: String,
}

/// What a double is made of.
#[derive(Default)]
pub struct DoubleBuilder {
    world: World,
}

impl DoubleBuilder {
    /// Adds an account, and the access key that it is known by.
    #[must_use]
    pub fn account(mut self, account: &str, access_key: &str) -> Self {
        self.world.keys.insert(access_key.into(), account.into());
        self
    }

    /// Adds a role of an account, by its ARN: `arn:aws:iam::222233334444:role/baker`.
    #[must_use]
    pub fn role(mut self, arn: &str) -> Self {
        let account = arn.split(':').nth(4).unwrap_or_default().to_owned();
        self.world.roles.insert(arn.into(), account);
        self
    }

    /// Adds a region.
    #[must_use]
    pub fn region(mut self, region: &str) -> Self {
        self.world.regions.entry(region.into()).or_default();
        self
    }

    /// Sets how long things take.
    #[must_use]
    pub fn delays(mut self, delays: Delays) -> Self {
        self.world.delays = delays;
        self
    }

    /// Adds an instance, on which a bake may run.
    #[must_use]
    pub fn machine(mut self, machine: Machine) -> Self {
        self.world.machines.push(machine);
        self
    }

    /// Begins to answer, on a port of this machine that is free.
    ///
    /// # Errors
    ///
    /// If there is no port.
    pub async fn start(self) -> io::Result<Double> {
        self.start_at("127.0.0.1:0".parse().expect("an address")).await
    }

    /// Begins to answer at an address.
    ///
    /// # Errors
    ///
    /// If it is taken.
    pub async fn start_at(self, address: SocketAddr) -> io::Result<Double> {
        for machine in &self.world.machines {
            machine.boot()?;
        }
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let shared =
            Arc::new(Shared { world: Mutex::new(self.world), faults: Mutex::default(), requests: Mutex::default() });
        let server = tokio::spawn(serve(listener, Arc::clone(&shared)));
        Ok(Double { shared, address, server })
    }
}

impl Double {
    /// Begins to describe a double.
    pub fn builder() -> DoubleBuilder {
        DoubleBuilder::default()
    }

    /// Returns the URL that clients are pointed to.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Lays a fault on an operation.
    pub fn fault(&self, fault: Fault) {
        self.shared.faults().push(fault);
    }

    /// Takes all faults away.
    pub fn no_faults(&self) {
        self.shared.faults().clear();
    }

    /// Sets how long things take from now on.
    pub fn set_delays(&self, delays: Delays) {
        self.shared.world().delays = delays;
    }

    /// Returns every request that was made.
    pub fn requests(&self) -> Vec<Request> {
        self.shared.requests().clone()
    }

    /// Puts the bytes of a file into a new, complete snapshot.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or the region was not declared.
    pub fn seed_snapshot(&self, account: &str, region: &str, disk: &Path) -> io::Result<String> {
        self.shared.world().seed_snapshot(account, region, disk)
    }

    /// Registers an image of a snapshot that is there.
    ///
    /// # Errors
    ///
    /// If the snapshot is not there.
    pub fn seed_image(&self, account: &str, region: &str, image: SeedImage) -> io::Result<String> {
        self.shared.world().seed_image(account, region, image)
    }

    /// Lets a region encrypt what is made there, whoever asks.
    pub fn encrypt_by_default(&self, region: &str) {
        self.shared.world().encrypting.insert(region.into());
    }

    /// Sets the value of a public parameter.
    pub fn seed_parameter(&self, region: &str, name: &str, value: &str) {
        self.shared.world().parameters.insert((region.into(), name.into()), value.into());
    }

    /// Lists the images of an account in a region that were not deregistered.
    pub fn images(&self, account: &str, region: &str) -> Vec<Image> {
        let world = self.shared.world();
        let space = world.regions.get(region);
        let ours = |image: &&Image| image.owner == account && !image.deregistered;
        space.iter().flat_map(|space| space.images.values()).filter(ours).cloned().collect()
    }

    /// Lists the snapshots of an account in a region.
    pub fn snapshots(&self, account: &str, region: &str) -> Vec<Snapshot> {
        let world = self.shared.world();
        let space = world.regions.get(region);
        let ours = |snapshot: &&Snapshot| snapshot.owner == account;
        space.iter().flat_map(|space| space.snapshots.values()).filter(ours).cloned().collect()
    }

    /// Lists the volumes of an account in a region.
    pub fn volumes(&self, account: &str, region: &str) -> Vec<Volume> {
        let mut world = self.shared.world();
        // Whose time has come is gone, though nobody asked; what cannot be shown is told to whoever does.
        let _told_later = ec2::volumes::advance(&mut world);
        let space = world.regions.get(region);
        let ours = |volume: &&Volume| volume.owner == account;
        space.iter().flat_map(|space| space.volumes.values()).filter(ours).cloned().collect()
    }

    /// Writes the bytes of a snapshot to a file.
    ///
    /// # Errors
    ///
    /// If the file cannot be written, or the snapshot is not there.
    pub fn write_snapshot(&self, region: &str, id: &str, to: &Path) -> io::Result<()> {
        let snapshot = self.shared.world().regions.get(region).and_then(|space| space.snapshots.get(id)).cloned();
        let snapshot = snapshot.ok_or_else(|| io::Error::other(format!("no snapshot {id}")))?;
        let file = std::fs::File::create(to)?;
        file.set_len(u64::from(snapshot.size) << 30)?;
        for index in snapshot.blocks.all().into_keys() {
            let (data, _) = snapshot.blocks.get(index)?.expect("it is listed");
            std::os::unix::fs::FileExt::write_all_at(&file, &data, u64::from(index) * BLOCK as u64)?;
        }
        Ok(())
    }
}

impl Drop for Double {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Shared {
    pub(crate) fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().expect("no operation panics")
    }

    fn faults(&self) -> MutexGuard<'_, Vec<Fault>> {
        self.faults.lock().expect("nothing panics with it")
    }

    fn requests(&self) -> MutexGuard<'_, Vec<Request>> {
        self.requests.lock().expect("nothing panics with it")
    }
}

async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let _small_answers_go_at_once = stream.set_nodelay(true);
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            let service = service_fn(move |request| {
                let shared = Arc::clone(&shared);
                async move { handle(&shared, request).await }
            });
            // A client that goes away is nothing to us.
            let _gone =
                hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

/// A request that was understood as far as its service and operation.
pub(crate) struct Call {
    pub(crate) account: String,
    pub(crate) region: String,
    pub(crate) operation: String,
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) params: Params,
    pub(crate) body: Bytes,
    /// What is made ends in failure, for this reason: a fault.
    pub(crate) doom: Option<String>,
}

/// Answers a request. An error ends the connection.
async fn handle(shared: &Arc<Shared>, request: hyper::Request<Incoming>) -> io::Result<Response<Full<Bytes>>> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
    let request_id = format!("{:08x}-aaaa-bbbb-cccc-dddddddddddd", shared.requests().len());
    let metadata = || metadata::is_for_us(parts.uri.path()).then(Scope::of_metadata);
    let Some(scope) = Scope::of(&parts.headers).or_else(metadata) else {
        let refusal = Refusal::new("MissingAuthenticationToken", "The request is not signed").status(403);
        return Ok(write(Protocol::Ec2, "", &request_id, Err(refusal)));
    };
    let (protocol, operation, params) = services::understand(&scope.service, &parts, &body);
    let account = match scope.service.as_str() {
        Scope::METADATA => Some(String::new()),
        _ => shared.world().keys.get(&scope.access_key).cloned(),
    };
    let mut call = Call {
        account: account.clone().unwrap_or_default(),
        region: scope.region.clone(),
        operation: operation.clone(),
        method: parts.method,
        path: parts.uri.path().to_owned(),
        headers: parts.headers,
        params,
        body,
        doom: None,
    };
    let mut log = Request {
        at: jiff::Timestamp::now(),
        account: call.account.clone(),
        region: call.region.clone(),
        service: scope.service.clone(),
        operation: operation.clone(),
        parameters: call.params.all(),
        outcome: "no answer".into(),
    };
    // A fault on a call is not one on its dry run, which changes nothing: that is called `RegisterImage:DryRun`.
    let dry = call.params.all().get("DryRun").is_some_and(|dry| dry == "true");
    let called = if dry { format!("{operation}:DryRun") } else { operation.clone() };
    let fault = due(&mut shared.faults(), &called, &scope.region);
    let answer = match (&account, &fault) {
        (None, _) => Err(services::unknown_key(&scope.service)),
        (_, Some(FaultKind::DropBefore)) => {
            shared.requests().push(log);
            return Err(io::Error::other("dropped before"));
        }
        (_, Some(kind)) if services::refusal(protocol, &operation, kind).is_some() => {
            Err(services::refusal(protocol, &operation, kind).expect("it was just there"))
        }
        (_, fault) => {
            match fault {
                Some(FaultKind::Delay(time)) => tokio::time::sleep(*time).await,
                Some(FaultKind::Fails(reason)) => call.doom = Some(reason.clone()),
                _ => {}
            }
            dispatch(shared, &scope.service, call).await
        }
    };
    if fault == Some(FaultKind::DropAfter) {
        shared.requests().push(log);
        return Err(io::Error::other("dropped after"));
    }
    log.outcome = match &answer {
        Ok(_) => "200".into(),
        Err(refusal) => refusal.code.clone(),
    };
    shared.requests().push(log);
    Ok(write(protocol, &operation, &request_id, answer))
}

async fn dispatch(shared: &Arc<Shared>, service: &str, call: Call) -> Answered {
    match service {
        "ec2" => ec2::answer(&mut shared.world(), call),
        "ebs" => ebs::answer(shared, call).await,
        "sts" => services::sts(&mut shared.world(), call),
        "ssm" => services::ssm(&shared.world(), &call),
        Scope::METADATA => metadata::answer(&mut shared.world(), &call),
        other => Err(Refusal::new("UnknownService", format!("This double does not have the service {other}"))),
    }
}

/// An answer that says that all went well.
pub(crate) fn done() -> Answered {
    Ok(Answer::Xml(crate::answer::Xml::new().text("return", true)))
}
