//! `/run/wireguard/INTERFACE.sock`: what `wg show` asks about an interface of this process. It answers and changes nothing: who is a
//! peer is the registry's word.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use gotatun::device::configure::PeerStats;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use zeroize::Zeroizing;

use super::userspace::TunnelDevice;
use crate::clock;

const DIR: &str = "/run/wireguard";
/// Who may wait for an answer at once.
const CLIENTS: usize = 4;
const PATIENCE: Duration = Duration::from_secs(5);
/// The only question that is answered.
const GET: &[u8] = b"get=1\n\n";
/// To everything else: not permitted.
const REFUSED: &[u8] = b"errno=1\n\n";

/// Dropping it removes the file.
pub struct ControlSocket {
    path: PathBuf,
    served: JoinHandle<()>,
}

impl ControlSocket {
    pub fn serve(interface: &str, device: Arc<TunnelDevice>) -> io::Result<Self> {
        match fs::create_dir(DIR) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            Ok(()) => fs::set_permissions(DIR, fs::Permissions::from_mode(0o700))?,
            Err(_) => {}
        }
        let path = Path::new(DIR).join(format!("{interface}.sock"));
        let listener = bind(&path)?;
        let clients = Arc::new(Semaphore::new(CLIENTS));
        let device = Arc::downgrade(&device);
        let served = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let Ok(place) = clients.clone().try_acquire_owned() else { continue };
                let device = device.clone();
                tokio::spawn(async move {
                    let answered = async {
                        if may_ask(&stream)
                            && let Some(device) = device.upgrade()
                        {
                            _ = answer(stream, &device).await;
                        }
                    };
                    _ = timeout(PATIENCE, answered).await;
                    drop(place);
                });
            }
        });
        Ok(Self { path, served })
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        self.served.abort();
        _ = fs::remove_file(&self.path);
    }
}

/// For this user alone: the answer holds the private key, from which `wg` derives the public one.
fn bind(path: &Path) -> io::Result<UnixListener> {
    // What a process that was killed has left; nobody else can have an interface of this name.
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// This user, and root.
fn may_ask(stream: &UnixStream) -> bool {
    let own = rustix::process::geteuid().as_raw();
    stream.peer_cred().is_ok_and(|credentials| credentials.uid() == 0 || credentials.uid() == own)
}

async fn answer(mut stream: UnixStream, device: &TunnelDevice) -> io::Result<()> {
    let mut asked = Vec::new();
    while !asked.ends_with(b"\n\n") && asked.len() < 64 {
        let mut byte = [0];
        if stream.read(&mut byte).await? == 0 {
            break;
        }
        asked.extend(byte);
    }
    if asked != GET {
        return stream.write_all(REFUSED).await;
    }
    let (key, port, peers) = device
        .read(async |device| {
            let key = device.private_key().map(|key| Zeroizing::new(key.to_bytes()));
            (key, device.listen_port(), device.peers().await)
        })
        .await;
    let mut text = Zeroizing::new(String::new());
    if let Some(key) = key {
        _ = writeln!(text, "private_key={}", *hex(key.as_slice()));
    }
    _ = writeln!(text, "listen_port={port}");
    for peer in &peers {
        describe(&mut text, peer);
    }
    _ = write!(text, "errno=0\n\n");
    stream.write_all(text.as_bytes()).await
}

fn describe(text: &mut String, PeerStats { peer, stats, .. }: &PeerStats) {
    _ = writeln!(text, "public_key={}", *hex(peer.public_key.as_bytes()));
    if let Some(endpoint) = peer.endpoint {
        _ = writeln!(text, "endpoint={endpoint}");
    }
    if let Some(ago) = stats.last_handshake {
        let at = Duration::from_millis(clock::now().millis()).saturating_sub(ago);
        _ = writeln!(text, "last_handshake_time_sec={}", at.as_secs());
        _ = writeln!(text, "last_handshake_time_nsec={}", at.subsec_nanos());
    }
    _ = writeln!(text, "tx_bytes={}\nrx_bytes={}", stats.tx_bytes, stats.rx_bytes);
    _ = writeln!(text, "persistent_keepalive_interval={}", peer.keepalive.unwrap_or_default());
    for net in &peer.allowed_ips {
        _ = writeln!(text, "allowed_ip={}/{}", net.ip(), net.prefix());
    }
    text.push_str("protocol_version=1\n");
}

fn hex(bytes: &[u8]) -> Zeroizing<String> {
    let mut text = Zeroizing::new(String::with_capacity(bytes.len() * 2));
    for byte in bytes {
        _ = write!(text, "{byte:02x}");
    }
    text
}
