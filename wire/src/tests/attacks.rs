//! Those who are no part of the run, or come between.

use std::io::Read;
use std::net::TcpStream;
use std::time::Duration;

use bytes::Bytes;
use tonic::Code;

use super::proxy::{Proxy, Way};
use super::raw::{Raw, bytes, hello, run};
use super::{Agent, Controller, PATIENCE, assert_has, limit, loopback, settings};
use crate::handshake::{Hello, Proof};
use crate::keys::Kind;
use crate::secret::to_hex;
use crate::{LARGEST_MESSAGE, Secret, Settings};

/// A controller and its secret.
fn controller() -> (Controller, Secret) {
    let secret = Secret::generate().unwrap();
    (Controller::start(&secret), secret)
}

fn json(text: &str) -> Bytes {
    Bytes::from(serde_json::to_vec(text).unwrap())
}

#[test]
fn both_sides_notice_another_secret() {
    limit(30, || {
        let (controller, _) = controller();
        let agent = Agent::start(&controller.address(), &Secret::generate().unwrap());
        assert_has(&agent.refused(), "the controller has another secret");
        assert_has(&controller.refused(), "it has another secret");
    });
}

#[test]
fn a_wrong_proof_is_refused() {
    limit(30, || {
        let (controller, _) = controller();
        let status = run(async {
            let mut raw = Raw::connect(&controller.address()).await;
            let (_, proof) = raw.challenged(&Secret::generate().unwrap()).await;
            raw.say(proof);
            raw.end().await.unwrap()
        });
        assert_eq!(status.code(), Code::Unauthenticated);
        assert_has(&controller.refused(), "the agent has another secret");
    });
}

#[test]
fn the_proof_of_the_controller_is_none_of_an_agent() {
    limit(30, || {
        let (controller, secret) = controller();
        let status = run(async {
            let mut raw = Raw::connect(&controller.address()).await;
            let (keys, _) = raw.challenged(&secret).await;
            let proof = Proof { proof: to_hex(keys.proof_of_controller().as_ref()) };
            raw.say(serde_json::to_vec(&proof).unwrap());
            raw.end().await.unwrap()
        });
        assert_eq!(status.code(), Code::Unauthenticated);
    });
}

#[test]
fn a_recorded_handshake_is_worth_nothing() {
    limit(30, || {
        let (controller, secret) = controller();
        let status = run(async {
            let mut first = Raw::connect(&controller.address()).await;
            let (_, recorded) = first.challenged(&secret).await;
            let mut second = Raw::connect(&controller.address()).await;
            drop(second.challenged(&secret).await);
            second.say(recorded);
            second.end().await.unwrap()
        });
        assert_eq!(status.code(), Code::Unauthenticated);
    });
}

#[test]
fn other_versions_are_refused_with_words() {
    limit(30, || {
        let (controller, secret) = controller();
        let other = Settings { version: "9.9.9".to_owned(), ..settings() };
        let agent = Agent::start_with(&controller.address(), &secret, other);
        let why = agent.refused();
        assert_has(&why, "9.9.9");
        assert_has(&why, "install the same version of titan-tpu on all hosts");
        assert_eq!(controller.refused(), why);
    });
    limit(30, || {
        let (controller, _) = controller();
        let status = run(async {
            let mut raw = Raw::connect(&controller.address()).await;
            let other = Hello { protocol: 99, ..hello() };
            raw.say(serde_json::to_vec(&other).unwrap());
            raw.end().await.unwrap()
        });
        assert_eq!(status.code(), Code::FailedPrecondition);
        assert_has(status.message(), "the agent version 99");
        assert_has(&controller.refused(), "the agent version 99");
    });
}

#[test]
fn what_is_no_hello_is_refused() {
    limit(30, || {
        let (controller, _) = controller();
        let status = run(async {
            let mut raw = Raw::connect(&controller.address()).await;
            raw.say("GET / HTTP/1.1");
            raw.end().await.unwrap()
        });
        assert_has(status.message(), "this is not how titan-tpu begins");
        controller.refused();
    });
}

/// What the controller says of one that sends these frames after a right handshake. `frames` gets three sealed frames and the
/// first from the controller.
fn after(frames: impl FnOnce([Vec<u8>; 3], Vec<u8>) -> Vec<Vec<u8>>) -> (Vec<String>, String) {
    let (controller, secret) = controller();
    run(async {
        let (mut raw, mut sealer, _, welcome) = Raw::known(&controller.address(), &secret).await;
        let sealed =
            ["one", "two", "three"].map(|text| bytes(sealer.seal(Kind::Message, json(text))));
        for frame in frames(sealed, welcome.to_vec()) {
            raw.say(frame);
        }
        raw.end().await;
    });
    controller.connected();
    let mut messages = Vec::new();
    loop {
        match controller.next() {
            crate::Incoming::Message { message, .. } => messages.push(message),
            crate::Incoming::Disconnected { why, .. } => return (messages, why),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn repeated_moved_withheld_and_reflected_frames_end_the_stream() {
    limit(60, || {
        let (messages, why) = after(|[one, ..], _| vec![one.clone(), one]);
        assert_eq!(messages, ["one"]);
        assert_has(&why, "frame 1 came where 2 was due");
        let (messages, why) = after(|[one, two, _], _| vec![two, one]);
        assert_eq!(messages, [""; 0]);
        assert_has(&why, "frame 2 came where 1 was due");
        let (messages, why) = after(|[one, _, three], _| vec![one, three]);
        assert_eq!(messages, ["one"]);
        assert_has(&why, "frame 3 came where 2 was due");
        let (messages, why) = after(|_, welcome| vec![welcome]);
        assert_eq!(messages, [""; 0]);
        assert_has(&why, "the tag of a frame is wrong");
    });
}

#[test]
fn altered_frames_end_the_stream() {
    limit(60, || {
        // A byte of the counter, the kind, the payload and the tag; and a frame that is cut.
        for place in [7, 8, 10, 20, 45] {
            let (messages, why) = after(|[mut one, ..], _| {
                one[place] ^= 1;
                vec![one]
            });
            assert_eq!(
                (messages.len(), why.contains("the tag of a frame is wrong")),
                (0, true),
                "{why}"
            );
        }
        let (_, why) = after(|[one, ..], _| vec![one[..40].to_vec()]);
        assert_has(&why, "too short");
        let (_, why) = after(|[one, ..], _| vec![one[..45].to_vec()]);
        assert_has(&why, "the tag of a frame is wrong");
    });
}

#[test]
fn what_is_changed_on_the_way_is_noticed_in_both_directions() {
    limit(60, || {
        let (controller, secret) = controller();
        let changed =
            || Way { replaced: Some(("attack at dawn", "attack at dusk")), ..Way::default() };
        let proxy = Proxy::start(&controller.address(), changed(), changed());
        let agent = Agent::start(&proxy.address, &secret);
        agent.connected();
        controller.connected();
        agent.connection.send(&"attack at dawn".to_owned()).unwrap();
        assert_has(&controller.disconnected(), "the tag of a frame is wrong");
        agent.disconnected();
        agent.connected();
        let peer = controller.connected();
        controller.listener.send(peer, &"attack at dawn".to_owned()).unwrap();
        assert_has(&agent.disconnected(), "the tag of a frame is wrong");
        controller.disconnected();
    });
}

#[test]
fn a_stranger_cannot_send_much() {
    limit(30, || {
        let (controller, _) = controller();
        let status = run(async {
            let mut raw = Raw::connect(&controller.address()).await;
            raw.say(vec![b' '; 5000]);
            raw.end().await.unwrap()
        });
        assert_has(status.message(), "a frame of the handshake has 5000 bytes");
        controller.refused();
    });
}

#[test]
fn frames_of_64_mib_end_the_stream() {
    limit(60, || {
        let (messages, why) = after(|_, _| vec![vec![0; 64 << 20]]);
        assert_eq!(messages, [""; 0]);
        assert_has(&why, &(LARGEST_MESSAGE + crate::keys::OVERHEAD).to_string());
    });
}

#[test]
fn who_says_nothing_is_closed() {
    limit(30, || {
        let secret = Secret::generate().unwrap();
        let short = Duration::from_millis(100);
        let hasty = Settings { handshake: short, grace: short, ..settings() };
        let controller = Controller::start_with(loopback(), &secret, hasty);
        let mut socket = TcpStream::connect(controller.address()).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut said = Vec::new();
        socket.read_to_end(&mut said).unwrap();
        assert_has(&controller.refused(), "did not say what it is");
        let status = run(async { Raw::connect(&controller.address()).await.end().await.unwrap() });
        assert_has(status.message(), "it did not say who it is within 100ms");
        assert_has(&controller.refused(), "it did not say who it is within 100ms");
    });
}
