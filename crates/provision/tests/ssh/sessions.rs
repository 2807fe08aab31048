//! Sessions as workers use them.

use std::time::{Duration, Instant};

use bytes::Bytes;
use provision::ssh::{Auth, Command, Exit, Identity, Pin, Pool, Session, SshError};

use crate::bed::Sshd;

async fn run(session: &Session, line: &str) -> (Exit, String, String) {
    let output = session.run(Command::new(line)).await.unwrap();
    (output.exit.clone(), output.stdout.text(), output.stderr.text())
}

#[tokio::test]
async fn commands_run_with_their_output_and_their_end() {
    let sshd = Sshd::start();
    let session = Session::connect(&sshd.target(Pin::First)).await.unwrap();
    assert_eq!(*session.host_key(), sshd.host_key());
    let good = run(&session, "echo out; echo err >&2").await;
    assert_eq!(good, (Exit::Code(0), "out\n".into(), "err\n".into()));
    assert_eq!(run(&session, "exit 7").await.0, Exit::Code(7));
    assert_eq!(run(&session, "kill -9 $$").await.0, Exit::Signal("KILL".into()));
    let counted = session.run(Command::new("wc -c").stdin(vec![b'x'; 3_000_000])).await.unwrap();
    assert_eq!(counted.stdout.text().trim(), "3000000");
    // Does not read what it is given.
    let deaf = session.run(Command::new("exit 0").stdin(vec![b'x'; 9_000_000])).await.unwrap();
    assert!(deaf.is_good());
    session.close().await;
}

#[tokio::test]
async fn output_without_end_is_bounded_and_time_is_too() {
    let sshd = Sshd::start();
    let session = Session::connect(&sshd.known()).await.unwrap();
    let output = session.run(Command::new("yes | head -c 50000000; echo end")).await.unwrap();
    assert_eq!(output.stdout.total(), 50_000_004);
    assert!(output.stdout.text().len() < 140_000 && output.stdout.text().ends_with("end\n"));
    let mark = sshd.folder().join("still");
    let line = format!("sleep 3; touch {}", mark.display());
    let late = session.run(Command::new(line).limit(Duration::from_millis(1_500))).await.unwrap_err();
    assert_eq!(late.to_string(), "the command took longer than 1.5 s");
    assert!(late.is_passing());
    tokio::time::sleep(Duration::from_millis(3_000)).await;
    assert!(!mark.exists(), "what ran was ended");
    assert_eq!(run(&session, "echo on").await.1, "on\n", "the session goes on");
}

#[tokio::test]
async fn what_a_command_leaves_running_is_not_waited_for() {
    let sshd = Sshd::start();
    let session = Session::connect(&sshd.known()).await.unwrap();
    // It keeps the output of the command open, as a careless daemon does.
    let line = Command::new("sleep 20 & echo $!").limit(Duration::from_secs(12));
    let output = session.run(line).await.unwrap();
    assert!(output.is_good());
    run(&session, &format!("kill {}", output.stdout.text().trim())).await;
}

#[tokio::test]
async fn strangers_are_not_trusted_and_do_not_trust_us() {
    let mut sshd = Sshd::start();
    let first = sshd.known();
    let other = Auth::Key(Identity::from_seed(&[1; 32]));
    let denied = Session::connect(&provision::ssh::Target { auth: other, ..first.clone() }).await;
    let Err(denied @ SshError::Denied { .. }) = denied else { panic!("another key") };
    assert!(denied.to_string().contains("does not know the key SHA256:") && !denied.is_passing());
    sshd.replace();
    let Err(replaced) = Session::connect(&first).await else { panic!("another machine") };
    assert!(replaced.to_string().contains("shows the host key SHA256:"), "{replaced}");
    assert!(!replaced.is_passing());
    sshd.stop();
    let Err(gone) = Session::connect(&first).await else { panic!("nobody is there") };
    assert!(gone.to_string().ends_with("nothing listens there") && gone.is_passing());
}

#[tokio::test]
async fn files_appear_whole() {
    let sshd = Sshd::start();
    let session = Session::connect(&sshd.known()).await.unwrap();
    let path = sshd.folder().join("a folder/it's a file").display().to_string();
    let bytes = Bytes::from(vec![7; 1_000_000]);
    session.put(&path, 0o640, bytes.clone(), Duration::from_secs(20)).await.unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&path).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o640);
    let refused = session.put("/proc/nowhere/file", 0o600, bytes, Duration::from_secs(20)).await;
    assert!(refused.unwrap_err().to_string().starts_with("/proc/nowhere/file could not be written"));
}

#[tokio::test]
async fn a_machine_that_dies_in_the_middle_is_noticed() {
    let mut sshd = Sshd::start();
    let session = Session::connect(&sshd.known()).await.unwrap();
    let began = Instant::now();
    let running = session.run(Command::new("sleep 30"));
    let ending = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        sshd.stop();
    };
    let (ended, ()) = tokio::join!(running, ending);
    assert!(matches!(ended, Err(SshError::Broken { .. })), "{ended:?}");
    assert!(began.elapsed() < Duration::from_secs(25));
}

#[tokio::test]
async fn a_pool_uses_sessions_again_and_keeps_to_its_bound() {
    let mut sshd = Sshd::start();
    let second = Sshd::start();
    let pool = Pool::new(1);
    let pids = futures::future::join_all((0..20).map(|_| async {
        let session = pool.session(&sshd.known()).await.unwrap();
        run(&session, "echo $PPID").await.1
    }));
    let pids = pids.await;
    assert!(pids.iter().all(|pid| *pid == pids[0]), "one session for all: {pids:?}");
    // The place of a session that nobody uses goes to the next.
    let other = pool.session(&second.known()).await.unwrap();
    assert!(run(&other, "true").await.0 == Exit::Code(0));
    assert_eq!(pool.count(), 1);
    drop(other);
    drop(pool.session(&sshd.known()).await.unwrap());
    let before = sshd.known();
    sshd.replace();
    // It is noticed as soon as the old connection is known to be gone.
    let replaced = loop {
        match pool.session(&before).await {
            Ok(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            Err(error) => break error,
        }
    };
    assert!(matches!(replaced, SshError::HostKey { .. }), "{replaced}");
    assert!(pool.session(&sshd.known()).await.is_ok());
}
