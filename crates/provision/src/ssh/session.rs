//! One connection to one machine.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use russh::client::{self, Handle};
use russh::keys::{PrivateKeyWithHashAlg, PublicKeyOrCertificate};
use russh::{Channel, ChannelMsg, Disconnect};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use zeroize::Zeroizing;

use super::error::SshError;
use super::key::{HostKey, Identity};
use super::output::{Exit, Output, Said};

/// How long the output of a command that ended may be silent, and go on at most, until it is closed.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_MAX: Duration = Duration::from_secs(10);
/// A connection that is not made by then is not made.
const CONNECT_MAX: Duration = Duration::from_secs(10);
const AUTH_MAX: Duration = Duration::from_secs(20);
/// A machine that is silent for so long, three times, is gone.
const KEEPALIVE: Duration = Duration::from_secs(5);
/// Commands at once in one session; a usual sshd allows ten.
const CHANNELS_MAX: usize = 8;
/// How often a channel that is refused is asked for again.
const OPEN_TRIES: u32 = 20;
const OPEN_PAUSE: Duration = Duration::from_millis(50);
/// How long a command that was told to end may take for it.
const END_MAX: Duration = Duration::from_secs(2);
/// Bytes of a file per message.
const PIECE: usize = 32 * 1024;

/// With what we come in.
#[derive(Clone)]
pub enum Auth {
    Key(Identity),
    Password(Zeroizing<String>),
}

impl fmt::Debug for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(key) => key.fmt(f),
            Self::Password(_) => f.write_str("Password(…)"),
        }
    }
}

/// Which host keys are right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pin {
    /// Any: the machine is seen for the first time, and its key is to be kept.
    First,
    /// One of these.
    Known(Vec<HostKey>),
}

/// A machine and the way in.
#[derive(Debug, Clone)]
pub struct Target {
    /// Name or address.
    pub host: String,
    pub port: u16,
    pub user: String,
    pub auth: Auth,
    pub pin: Pin,
}

impl Target {
    pub fn address(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    pub(super) fn is_right(&self, key: &HostKey) -> bool {
        match &self.pin {
            Pin::First => true,
            Pin::Known(keys) => keys.contains(key),
        }
    }
}

/// Something to run.
#[derive(Debug, Clone)]
pub struct Command {
    /// For `sh`.
    pub line: String,
    pub stdin: Bytes,
    pub limit: Duration,
    /// Bytes kept of the beginning and of the end of each output.
    pub keep: usize,
}

impl Command {
    pub fn new(line: impl Into<String>) -> Self {
        Self { line: line.into(), stdin: Bytes::new(), limit: Duration::from_secs(60), keep: 64 << 10 }
    }

    pub fn limit(self, limit: Duration) -> Self {
        Self { limit, ..self }
    }

    pub fn stdin(self, stdin: impl Into<Bytes>) -> Self {
        Self { stdin: stdin.into(), ..self }
    }
}

/// A word that a shell takes as it is.
pub fn quote(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-_.,:=+@%".contains(&byte);
    if !word.is_empty() && word.bytes().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// Looks at the machine's key while the connection is made.
struct Watch {
    target: Arc<Target>,
    seen: Arc<Mutex<Option<HostKey>>>,
}

impl client::Handler for Watch {
    type Error = russh::Error;

    async fn check_server_key(&mut self, shown: &PublicKeyOrCertificate) -> Result<bool, russh::Error> {
        let key = match shown {
            PublicKeyOrCertificate::PublicKey { key, .. } => HostKey::of(key),
            // Its own key is what is pinned; we know no authority for hosts.
            PublicKeyOrCertificate::Certificate(certificate) => {
                HostKey::of(&certificate.public_key().clone().into())
            }
        };
        let is_right = self.target.is_right(&key);
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(key);
        Ok(is_right)
    }
}

pub struct Session {
    target: Arc<Target>,
    host_key: HostKey,
    handle: Handle<Watch>,
    channels: Semaphore,
}

impl Session {
    pub async fn connect(target: &Target) -> Result<Self, SshError> {
        let target = Arc::new(target.clone());
        let seen = Arc::new(Mutex::new(None));
        let watch = Watch { target: target.clone(), seen: seen.clone() };
        let config = client::Config {
            keepalive_interval: Some(KEEPALIVE),
            nodelay: true,
            ..client::Config::default()
        };
        let address = target.address();
        let connecting = client::connect(Arc::new(config), (target.host.as_str(), target.port), watch);
        let connected = timeout(CONNECT_MAX, connecting)
            .await
            .map_err(|_| SshError::Late { what: format!("connecting to {address}"), limit: CONNECT_MAX })?;
        let shown = || seen.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut handle = connected.map_err(|error| match (&target.pin, shown()) {
            (Pin::Known(expected), Some(found)) if !target.is_right(&found) => {
                SshError::HostKey { address: address.clone(), found, expected: expected.clone() }
            }
            _ => SshError::Unreachable { address: address.clone(), reason: plain(&error) },
        })?;
        let entering = enter(&mut handle, &target);
        timeout(AUTH_MAX, entering)
            .await
            .map_err(|_| SshError::Late { what: format!("logging in to {address}"), limit: AUTH_MAX })??;
        let host_key =
            shown().ok_or_else(|| SshError::Broken { address, reason: "it showed no key".into() })?;
        Ok(Self { target, host_key, handle, channels: Semaphore::new(CHANNELS_MAX) })
    }

    pub fn host_key(&self) -> &HostKey {
        &self.host_key
    }

    pub fn target(&self) -> &Target {
        &self.target
    }

    pub fn is_closed(&self) -> bool {
        self.handle.is_closed()
    }

    /// Runs a command to its end.
    pub async fn run(&self, command: Command) -> Result<Output, SshError> {
        self.run_until(command, &CancellationToken::new()).await
    }

    /// Runs a command to its end, or ends it when it is stopped.
    pub async fn run_until(&self, command: Command, stop: &CancellationToken) -> Result<Output, SshError> {
        let mut said = Said::new(command.keep);
        let exit = self.run_into(command, stop, &mut said).await?;
        Ok(said.ended(exit))
    }

    /// The same; what the command said is in `said` also when it was cut off.
    pub async fn run_into(
        &self,
        command: Command,
        stop: &CancellationToken,
        said: &mut Said,
    ) -> Result<Exit, SshError> {
        if stop.is_cancelled() {
            return Err(SshError::Stopped);
        }
        let _place = self.channels.acquire().await;
        let late = |what: &str, limit| SshError::Late { what: what.to_owned(), limit };
        let opening = timeout(CONNECT_MAX, self.open());
        let channel = opening.await.map_err(|_| late("opening a channel", CONNECT_MAX))?;
        let mut channel = channel.map_err(|error| self.broken(plain(&error)))?;
        let pid = AtomicU32::new(0);
        let ended = tokio::select! {
            done = timeout(command.limit, self.drive(&mut channel, &command, &pid, said)) => done,
            () = stop.cancelled() => Ok(Err(SshError::Stopped)),
        };
        match ended {
            Ok(Err(SshError::Stopped)) => {
                let _ = timeout(END_MAX, self.end(channel, pid.into_inner())).await;
                Err(SshError::Stopped)
            }
            Ok(done) => done,
            Err(_) => {
                let _ = timeout(END_MAX, self.end(channel, pid.into_inner())).await;
                Err(late("the command", command.limit))
            }
        }
    }

    /// sshd still counts channels that ended a moment ago, and refuses one too many.
    async fn open(&self) -> Result<Channel<client::Msg>, russh::Error> {
        for _ in 0..OPEN_TRIES {
            match self.handle.channel_open_session().await {
                Err(russh::Error::ChannelOpenFailure(_)) => tokio::time::sleep(OPEN_PAUSE).await,
                opened => return opened,
            }
        }
        self.handle.channel_open_session().await
    }

    /// Ends what runs there, which would not notice that we went. A signal through the channel does not reach
    /// commands of root, so the whole session of the command is killed by another one.
    async fn end(&self, channel: Channel<client::Msg>, pid: u32) {
        let _ = channel.close().await;
        if pid > 1
            && let Ok(mut killer) = self.handle.channel_open_session().await
        {
            let line = format!("pkill -KILL -s {pid} 2>/dev/null || kill -KILL -- -{pid}");
            if killer.exec(true, line).await.is_ok() {
                while killer.wait().await.is_some() {}
            }
        }
    }

    async fn drive(
        &self,
        channel: &mut Channel<client::Msg>,
        command: &Command,
        pid: &AtomicU32,
        said: &mut Said,
    ) -> Result<Exit, SshError> {
        let mut greeting = Some(Vec::new());
        let line = format!("exec sh -c {}", quote(&format!("{GREET} {}", command.line)));
        channel.exec(true, line).await.map_err(|error| self.broken(plain(&error)))?;
        let writer = channel.make_writer();
        let mut feeding = Some(Box::pin(feed(writer, command.stdin.clone())));
        let mut exit = None;
        let (mut silent_at, mut late_at) = (Instant::now(), Instant::now());
        loop {
            let message = tokio::select! {
                // A daemon that it started may hold its output for ever.
                () = tokio::time::sleep_until(silent_at.min(late_at)), if exit.is_some() => {
                    let _ = channel.close().await;
                    break;
                }
                () = async { if let Some(feeding) = &mut feeding { feeding.await } }, if feeding.is_some() => {
                    feeding = None;
                    let _ = channel.eof().await;
                    continue;
                }
                message = channel.wait() => message,
            };
            silent_at = Instant::now() + LINGER;
            if exit.is_none() {
                late_at = Instant::now() + LINGER_MAX;
            }
            match message {
                Some(ChannelMsg::Data { data }) => said.stdout.add(&data),
                Some(ChannelMsg::ExtendedData { data, .. }) => {
                    said.stderr.add(&greeted(&mut greeting, data, pid));
                }
                Some(ChannelMsg::ExitStatus { exit_status }) => exit = Some(Exit::Code(exit_status)),
                Some(ChannelMsg::ExitSignal { signal_name, .. }) => {
                    exit = Some(Exit::Signal(format!("{signal_name:?}")));
                }
                Some(ChannelMsg::Failure) => return Err(self.broken("it refused to run the command".into())),
                Some(_) => {}
                None => break,
            }
        }
        exit.ok_or_else(|| self.broken("the command's end was not told".into()))
    }

    /// Writes a file; it appears whole or not at all. Its folder is made.
    pub async fn put(&self, path: &str, mode: u32, bytes: Bytes, limit: Duration) -> Result<(), SshError> {
        let folder =
            path.rsplit_once('/').map_or(".", |(folder, _)| if folder.is_empty() { "/" } else { folder });
        let (folder, file, part) = (quote(folder), quote(path), quote(&format!("{path}.part")));
        let line = format!(
            "umask 077 && mkdir -p {folder} && cat > {part} && chmod {mode:o} {part} && mv -f {part} {file}"
        );
        let output = self.run(Command::new(line).stdin(bytes).limit(limit)).await?;
        if output.is_good() {
            return Ok(());
        }
        let (address, path) = (self.target.address(), path.to_owned());
        Err(SshError::Put { address, path, reason: output.reason() })
    }

    pub async fn close(self) {
        let goodbye = self.handle.disconnect(Disconnect::ByApplication, "", "");
        let _ = timeout(END_MAX, goodbye).await;
    }

    fn broken(&self, reason: String) -> SshError {
        SshError::Broken { address: self.target.address(), reason }
    }
}

/// The first thing a command says on its standard error is its number, for us.
const GREET: &str = "printf '\\036%s\\n' \"$$\" >&2;";
/// Longer greetings are none.
const GREETING_MAX: usize = 32;

/// Takes the greeting off the beginning; returns what follows it.
fn greeted(greeting: &mut Option<Vec<u8>>, data: Bytes, pid: &AtomicU32) -> Bytes {
    let Some(mut begun) = greeting.take() else { return data };
    begun.extend_from_slice(&data);
    if begun.first() == Some(&0x1e) {
        if let Some(end) = begun.iter().position(|byte| *byte == b'\n') {
            let number = std::str::from_utf8(&begun[1..end]).ok().and_then(|text| text.parse().ok());
            pid.store(number.unwrap_or(0), Ordering::Relaxed);
            return Bytes::copy_from_slice(&begun[end + 1..]);
        }
        if begun.len() < GREETING_MAX {
            *greeting = Some(begun);
            return Bytes::new();
        }
    }
    begun.into()
}

async fn feed(mut writer: impl tokio::io::AsyncWrite + Unpin, bytes: Bytes) {
    use tokio::io::AsyncWriteExt;
    for piece in bytes.chunks(PIECE) {
        // A command that does not read to the end is no error.
        if writer.write_all(piece).await.is_err() {
            return;
        }
    }
    let _ = writer.flush().await;
}

async fn enter(handle: &mut Handle<Watch>, target: &Target) -> Result<(), SshError> {
    let answer = match &target.auth {
        Auth::Key(key) => {
            let key = PrivateKeyWithHashAlg::new(key.0.clone(), None);
            handle.authenticate_publickey(&target.user, key).await
        }
        Auth::Password(password) => handle.authenticate_password(&target.user, password.as_str()).await,
    };
    let address = target.address();
    match answer {
        Ok(answer) if answer.success() => Ok(()),
        Ok(_) => {
            let reason = match &target.auth {
                Auth::Key(key) => format!("it does not know the key {}", key.fingerprint()),
                Auth::Password(_) => "it does not take the password".to_owned(),
            };
            Err(SshError::Denied { address, user: target.user.clone(), reason })
        }
        Err(error) => Err(SshError::Broken { address, reason: plain(&error) }),
    }
}

/// The library's words for people.
fn plain(error: &russh::Error) -> String {
    match error {
        russh::Error::IO(error) => match error.kind() {
            std::io::ErrorKind::ConnectionRefused => "nothing listens there".to_owned(),
            std::io::ErrorKind::UnexpectedEof | std::io::ErrorKind::ConnectionReset => {
                "it closed the connection".to_owned()
            }
            _ => error.to_string(),
        },
        russh::Error::Disconnect | russh::Error::HUP | russh::Error::SendError => {
            "it closed the connection".to_owned()
        }
        russh::Error::KeepaliveTimeout | russh::Error::InactivityTimeout => "it fell silent".to_owned(),
        error => error.to_string(),
    }
}
