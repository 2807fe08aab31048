//! The exchange, streams and blobs over loopback: the same suite for every transport.
#![allow(clippy::unwrap_used)]

mod common;

use bytes::Bytes;
use common::{Heard, Parent, Transport, Zone, desired_next, node, observed, patiently, world};
use link::{ByteStream, Down, Frame, RemoteIssuer, Uplink, certify};
use model::exchange::{Ask, Revision};
use model::{Digest, ErrorKind, InstanceId, Pulse};
use sha2::{Digest as _, Sha256};

macro_rules! all {
    ($($name:ident),* $(,)?) => {
        mod https { $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() { super::$name(super::Transport::Https).await; })* }
        mod mqtt { $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() { super::$name(super::Transport::Mqtt).await; })* }
        mod mosquitto { $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() { super::$name(super::Transport::Mosquitto).await; })* }
    };
}

all!(
    desired_is_delivered_and_never_twice,
    a_child_that_has_nothing_gets_the_whole_set_again,
    observed_is_acknowledged,
    a_parent_that_comes_back_finds_its_children,
    a_child_that_vanishes_is_noticed,
    beats_renew_the_lease,
    a_beat_carries_the_pulse_and_measures_the_way,
    a_call_is_answered_on_a_stream_both_ways,
    a_call_to_nobody_fails_at_once,
    a_stream_of_another_child_is_not_found,
    a_blob_comes_whole_or_not_at_all,
    a_removed_child_is_sent_away_and_never_let_in_again,
    a_child_that_is_refused_for_another_reason_keeps_what_it_has,
    a_set_of_many_pages_arrives_whole,
    two_hosts_with_one_identity_are_noticed,
    a_child_that_is_started_again_is_no_twin,
);

async fn desired_is_delivered_and_never_twice(transport: Transport) {
    let world = world(transport).await;
    let first = desired_next(&*world.uplink).await;
    assert_eq!((first.base, first.at.rev), (None, 1));
    for _ in 0..5 {
        let at = world.zone.handler.change();
        let set = desired_next(&*world.uplink).await;
        assert_eq!(set.at, at);
        assert_eq!(set.base, Some(Revision { epoch: 1, rev: at.rev - 1 }), "a difference to what it has");
        assert_eq!(set.removes.len() as u64, at.rev, "with its content");
    }
    // Nothing changed, so nothing may come.
    let more = tokio::time::timeout(std::time::Duration::from_secs(6), world.uplink.next()).await;
    assert!(more.is_err(), "{more:?}");
}

async fn a_child_that_has_nothing_gets_the_whole_set_again(transport: Transport) {
    let world = world(transport).await;
    let first = desired_next(&*world.uplink).await;
    world.uplink.set_have(None);
    let again = desired_next(&*world.uplink).await;
    assert_eq!((again.base, again.at), (None, first.at));
}

async fn observed_is_acknowledged(transport: Transport) {
    let world = world(transport).await;
    for rev in 1..=3 {
        let at = Revision { epoch: 1, rev };
        let ack = world.uplink.push(observed(rev)).await.unwrap();
        assert_eq!(ack.have, Some(at));
        world.zone.handler.wait(Heard::Observed(world.child.clone(), at)).await;
    }
}

async fn a_parent_that_comes_back_finds_its_children(transport: Transport) {
    let world = world(transport).await;
    desired_next(&*world.uplink).await;
    let addresses = world.zone.addresses();
    // An external broker runs on.
    let external = world.mosquitto.as_ref().map(|mosquitto| mosquitto.address);
    drop(world.zone);
    patiently("lost", async { while !matches!(world.uplink.next().await, Down::Lost) {} }).await;
    assert_eq!(world.uplink.push(observed(1)).await.unwrap_err().kind, ErrorKind::Unavailable);
    let zone = Zone::start_with(world.dir.path(), &world.ca, Parent::new(2), addresses, external).await;
    let set = desired_next(&*world.uplink).await;
    assert_eq!((set.base, set.at), (None, Revision { epoch: 2, rev: 1 }));
    zone.handler.wait(Heard::Link(world.child.clone(), true)).await;
    world.uplink.push(observed(2)).await.unwrap();
    zone.handler.wait(Heard::Observed(world.child.clone(), Revision { epoch: 1, rev: 2 })).await;
}

/// The child's tasks are dropped without a word, as when its process is killed.
async fn a_child_that_vanishes_is_noticed(transport: Transport) {
    let world = world(transport).await;
    drop(world.uplink);
    world.zone.handler.wait(Heard::Link(world.child.clone(), false)).await;
    let again = world.zone.uplink(transport, &world.credentials);
    world.zone.handler.wait(Heard::Link(world.child.clone(), true)).await;
    desired_next(&*again).await;
}

async fn beats_renew_the_lease(transport: Transport) {
    let world = world(transport).await;
    desired_next(&*world.uplink).await;
    let count = || world.zone.handler.beats.lock().unwrap().get(&world.child).copied().unwrap_or(0);
    let before = count();
    patiently("beats", async {
        while count() < before + 2 {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    })
    .await;
}

async fn a_beat_carries_the_pulse_and_measures_the_way(transport: Transport) {
    let world = world(transport).await;
    world.uplink.pulse_from(std::sync::Arc::new(|| Pulse { orphans_removed: 3, ..Pulse::default() }));
    let pulse = || world.zone.handler.pulses.lock().unwrap().get(&world.child).cloned();
    patiently("the pulse", async {
        while pulse().is_none_or(|pulse| pulse.orphans_removed != 3) || world.uplink.rtt().is_none() {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    })
    .await;
}

/// Answers every call with what comes in, until the end.
async fn echo(uplink: std::sync::Arc<dyn Uplink>) {
    loop {
        match uplink.next().await {
            Down::Desired(desired) => uplink.set_have(Some(desired.at)),
            Down::Call(call) => {
                let mut stream = uplink.open_stream(&call.stream).await.unwrap();
                while let Some(frame) = stream.recv().await {
                    match frame {
                        Frame::Data(bytes) => stream.send(Frame::Stdout(bytes)).await.unwrap(),
                        Frame::Eof => break,
                        other => stream.send(other).await.unwrap(),
                    }
                }
                stream.send(Frame::Exit { code: 7 }).await.unwrap();
            }
            Down::Up | Down::Lost | Down::Removed => {}
        }
    }
}

async fn a_call_is_answered_on_a_stream_both_ways(transport: Transport) {
    const SIZE: usize = 50 << 20;
    let world = world(transport).await;
    let answering = tokio::spawn(echo(world.uplink.clone()));
    let ask = Ask::Logs { instance: InstanceId::from_random(1), follow: false, tail_lines: None };
    let stream = world.zone.calls.call(&world.child, ask.clone()).await.unwrap();
    let (sent, got) = patiently("50 MB there and back", carry(stream, SIZE)).await;
    assert_eq!(sent, got);
    let mut stream = world.zone.calls.call(&world.child, ask).await.unwrap();
    stream.send(Frame::Resize { rows: 24, cols: 80 }).await.unwrap();
    assert_eq!(stream.recv().await, Some(Frame::Resize { rows: 24, cols: 80 }));
    stream.send(Frame::Eof).await.unwrap();
    assert_eq!(stream.recv().await, Some(Frame::Exit { code: 7 }));
    assert_eq!(stream.recv().await, None);
    answering.abort();
}

/// Sends `size` bytes, reads as many back, and returns both hashes.
async fn carry(stream: ByteStream, size: usize) -> (Vec<u8>, Vec<u8>) {
    let (sender, mut receiver) = stream.split();
    let send = async move {
        let mut hash = Sha256::new();
        for n in 0..size / (1 << 20) {
            let part = Bytes::from(vec![n as u8; 1 << 20]);
            hash.update(&part);
            sender.send(Frame::Data(part)).await.unwrap();
        }
        sender.send(Frame::Eof).await.unwrap();
        hash.finalize().to_vec()
    };
    let receive = async {
        let mut hash = Sha256::new();
        loop {
            match receiver.recv().await {
                Some(Frame::Stdout(bytes)) => hash.update(&bytes),
                Some(Frame::Exit { code: 7 }) => return hash.finalize().to_vec(),
                other => panic!("{other:?}"),
            }
        }
    };
    tokio::join!(send, receive)
}

async fn a_call_to_nobody_fails_at_once(transport: Transport) {
    let world = world(transport).await;
    let error = world.zone.calls.call(&"n-nobody".into(), Ask::Nodes).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable);
}

async fn a_stream_of_another_child_is_not_found(transport: Transport) {
    let world = world(transport).await;
    let other = world.zone.uplink(transport, &node(&world.ca, 2));
    let (calls, child) = (world.zone.calls.clone(), world.child.clone());
    let call = tokio::spawn(async move { calls.call(&child, Ask::Nodes).await.map(|_| ()) });
    let stream = patiently("a call", async {
        loop {
            match world.uplink.next().await {
                Down::Call(call) => return call.stream,
                Down::Desired(desired) => world.uplink.set_have(Some(desired.at)),
                _ => {}
            }
        }
    })
    .await;
    assert_eq!(other.open_stream(&stream).await.unwrap_err().kind, ErrorKind::NotFound);
    world.uplink.open_stream(&stream).await.unwrap();
    call.await.unwrap().unwrap();
}

async fn a_blob_comes_whole_or_not_at_all(transport: Transport) {
    let world = world(transport).await;
    let blob = Bytes::from((0..10_000_000u32).map(|n| (n % 251) as u8).collect::<Vec<_>>());
    let digest = Digest::from_sha256(&Sha256::digest(&blob));
    world.zone.handler.blobs.lock().unwrap().insert(digest.clone(), blob.clone());
    let mut got = Vec::new();
    assert_eq!(world.uplink.blob(&digest, &mut got).await.unwrap(), blob.len() as u64);
    assert!(got == blob);

    let wrong = Digest::from_sha256(&[9; 32]);
    world.zone.handler.blobs.lock().unwrap().insert(wrong.clone(), blob);
    let error = world.uplink.blob(&wrong, &mut Vec::new()).await.unwrap_err();
    assert!(error.message.contains("damaged"), "{error}");
    let missing = Digest::from_sha256(&[8; 32]);
    assert_eq!(world.uplink.blob(&missing, &mut Vec::new()).await.unwrap_err().kind, ErrorKind::NotFound);
}

async fn a_removed_child_is_sent_away_and_never_let_in_again(transport: Transport) {
    let world = world(transport).await;
    desired_next(&*world.uplink).await;
    let issuer = RemoteIssuer::new(&world.credentials, &world.zone.url()).unwrap();
    let renew = || certify(&issuer, world.credentials.identity.clone(), Vec::new());
    renew().await.unwrap();
    world.zone.handler.removed.lock().unwrap().push(world.child.clone());
    world.zone.calls.kick(&world.child);
    world.zone.handler.wait(Heard::Link(world.child.clone(), false)).await;
    assert!(world.uplink.push(observed(1)).await.is_err());
    patiently("lost", async { while !matches!(world.uplink.next().await, Down::Lost) {} }).await;
    patiently("it hears that it was removed", async {
        while !matches!(world.uplink.next().await, Down::Removed) {}
    })
    .await;
    assert!(common::stays_down(&*world.uplink).await);
    // So does one that was away meanwhile.
    let back = world.zone.uplink(transport, &world.credentials);
    let first = patiently("told at once", back.next()).await;
    assert!(matches!(first, Down::Removed), "{first:?}");
    let error = world.uplink.blob(&Digest::from_sha256(&[8; 32]), &mut Vec::new()).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Forbidden);
    assert_eq!(renew().await.unwrap_err().kind, ErrorKind::Forbidden);
    assert_eq!(
        world.zone.calls.call(&world.child, Ask::Nodes).await.unwrap_err().kind,
        ErrorKind::Unavailable
    );
}

/// Not known, another's child, or a parent that does not hold the duty: none of that is a removal.
async fn a_child_that_is_refused_for_another_reason_keeps_what_it_has(transport: Transport) {
    let world = world(transport).await;
    desired_next(&*world.uplink).await;
    world.zone.handler.unknown.lock().unwrap().push(world.child.clone());
    world.zone.calls.kick(&world.child);
    let away = async {
        loop {
            let down = world.uplink.next().await;
            assert!(matches!(down, Down::Lost | Down::Up | Down::Desired(_)), "{down:?}");
        }
    };
    assert!(tokio::time::timeout(std::time::Duration::from_secs(12), away).await.is_err());
    // Once it is known again all goes on.
    world.zone.handler.unknown.lock().unwrap().clear();
    world.zone.handler.wait(Heard::Link(world.child.clone(), true)).await;
    world.zone.handler.change();
    let next = desired_next(&*world.uplink).await;
    assert_eq!(next.at, *world.zone.handler.rev.borrow());
}

/// Each page is asked for as soon as the one before is taken.
async fn a_set_of_many_pages_arrives_whole(transport: Transport) {
    let world = world(transport).await;
    desired_next(&*world.uplink).await;
    for rev in 2..=40 {
        world.zone.handler.change();
        assert_eq!(desired_next(&*world.uplink).await.at.rev, rev);
        let mut page = observed(rev);
        page.set.more = rev < 40;
        page.set.removes = (0..20_000).map(InstanceId::from_random).collect();
        assert_eq!(world.uplink.push(page).await.unwrap().have, Some(Revision { epoch: 1, rev }));
    }
}

/// Both of them go on trying, ever more slowly, and the parent is told.
async fn two_hosts_with_one_identity_are_noticed(transport: Transport) {
    let world = world(transport).await;
    assert!(world.zone.handler.twins.lock().unwrap().is_empty());
    let _other = world.zone.uplink(transport, &world.credentials);
    patiently("two are noticed", async {
        while world.zone.handler.twins.lock().unwrap().first() != Some(&world.child) {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    })
    .await;
}

/// A process that is started again takes over from the one before, and nobody minds.
async fn a_child_that_is_started_again_is_no_twin(transport: Transport) {
    let common::World { zone, credentials, mut uplink, mosquitto, dir, .. } = world(transport).await;
    for _ in 0..3 {
        drop(uplink);
        uplink = zone.uplink(transport, &credentials);
        patiently("up", async { while !matches!(uplink.next().await, Down::Up) {} }).await;
    }
    assert!(zone.handler.twins.lock().unwrap().is_empty());
    drop((mosquitto, dir));
}
