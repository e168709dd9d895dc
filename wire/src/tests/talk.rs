//! Both sides as they are meant.

use std::sync::atomic::Ordering::SeqCst;
use std::thread::sleep;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::proxy::{Proxy, Way};
use super::{Agent, Controller, assert_has, limit, loopback, pair, settings, wait};
use crate::{LARGEST_MESSAGE, Secret, Settings, Unsent};

#[test]
fn messages_go_both_ways() {
    limit(30, || {
        let (controller, agent, peer) = pair();
        agent.connection.send(&"up".to_owned()).unwrap();
        assert_eq!(controller.message(), "up");
        controller.listener.send(peer, &"down".to_owned()).unwrap();
        assert_eq!(agent.message(), "down");
        assert_eq!(controller.listener.send_all(&"all".to_owned()), Ok(1));
        assert_eq!(agent.message(), "all");
        let heard = controller.listener.last_heard();
        assert_eq!(heard.len(), 1);
        wait("another sign of life", || controller.listener.last_heard()[0].1 > heard[0].1);
    });
}

#[test]
fn nothing_is_queued_for_who_is_not_there() {
    limit(30, || {
        let secret = Secret::generate().unwrap();
        let controller = Controller::start(&secret);
        assert_eq!(controller.listener.send_all(&"nobody".to_owned()), Ok(0));
        let agent = Agent::start("127.0.0.1:1", &secret);
        assert_eq!(agent.connection.send(&"nobody".to_owned()), Err(Unsent::Away));
        assert!(!agent.connection.delivered(Duration::from_millis(10)));
        assert_eq!(agent.connection.acknowledged(), None);
    });
}

#[test]
fn frames_arrive_in_order() {
    limit(120, || {
        let (controller, agent, peer) = pair();
        let mut runner = TestRunner::new(ProptestConfig {
            cases: 12,
            failure_persistence: None,
            ..ProptestConfig::default()
        });
        let lengths =
            prop::collection::vec(prop_oneof![8 => 0_usize..50, 1 => 0_usize..200_000], 1..300);
        let in_order = |lengths: Vec<usize>| {
            let texts = lengths
                .iter()
                .enumerate()
                .map(|(at, length)| format!("{at}{}", "x".repeat(*length)));
            let texts: Vec<String> = texts.collect();
            for text in &texts {
                agent.connection.send(text).unwrap();
                controller.listener.send(peer, text).unwrap();
            }
            for text in &texts {
                prop_assert_eq!(text, &controller.message());
                prop_assert_eq!(text, &agent.message());
            }
            Ok(())
        };
        runner.run(&lengths, in_order).unwrap();
    });
}

#[test]
fn messages_have_a_limit() {
    limit(60, || {
        let (controller, agent, peer) = pair();
        let large = "x".repeat(LARGEST_MESSAGE - 2);
        agent.connection.send(&large).unwrap();
        controller.listener.send(peer, &large).unwrap();
        assert!(controller.message() == large && agent.message() == large);
        let larger = "x".repeat(64 << 20);
        let refused = Unsent::TooLarge { bytes: (64 << 20) + 2, most: LARGEST_MESSAGE };
        assert_eq!(agent.connection.send(&larger), Err(refused.clone()));
        assert_eq!(controller.listener.send(peer, &larger), Err(refused));
        agent.connection.send(&"still there".to_owned()).unwrap();
        assert_eq!(controller.message(), "still there");
    });
}

#[test]
fn a_message_of_another_type_ends_the_stream() {
    limit(30, || {
        let secret = Secret::generate().unwrap();
        let controller = Controller::start(&secret);
        let driver = crate::Driver::start("agent").unwrap().into();
        let (tell, connected) = std::sync::mpsc::channel();
        let report = move |_: crate::FromController<String>| tell.send(()).unwrap_or_default();
        let address = controller.address();
        let agent = crate::Connection::<u8>::open_on(&driver, &address, secret, settings(), report);
        connected.recv_timeout(super::PATIENCE).unwrap();
        agent.send(&7).unwrap();
        controller.connected();
        assert_has(&controller.disconnected(), "a message cannot be understood");
    });
}

#[test]
fn an_acknowledgement_counts_from_when_its_frame_was_sent() {
    limit(60, || {
        let secret = Secret::generate().unwrap();
        let controller = Controller::start(&secret);
        let proxy = Proxy::start(&controller.address(), Way::default(), Way::default());
        let agent = Agent::start(&proxy.address, &secret);
        agent.connected();
        let acknowledged = || agent.connection.acknowledged().unwrap();
        // Answers are late: what they say is old when it comes, though one comes with every beat.
        proxy.down.delay.store(200, SeqCst);
        wait("late answers", || acknowledged() > Duration::from_millis(200));
        for _ in 0..100 {
            assert!(acknowledged() >= Duration::from_millis(200), "{:?}", acknowledged());
            sleep(Duration::from_millis(2));
        }
        proxy.down.delay.store(0, SeqCst);
        wait("answers in time", || acknowledged() < Duration::from_millis(190));
        // No answers: the agent goes on sending, and that proves nothing.
        proxy.down.blocked.store(true, SeqCst);
        wait("no answers", || acknowledged() > Duration::from_millis(500));
        agent.connection.send(&"unanswered".to_owned()).unwrap();
        assert!(!agent.connection.delivered(Duration::from_millis(20)));
        proxy.down.blocked.store(false, SeqCst);
        wait("answers again", || acknowledged() < Duration::from_millis(500));
        assert!(agent.connection.delivered(super::PATIENCE));
    });
}

#[test]
fn an_acknowledgement_outlives_its_stream() {
    limit(60, || {
        let (controller, agent, _) = pair();
        assert!(agent.connection.acknowledged().is_some());
        drop(controller);
        agent.disconnected();
        assert!(agent.connection.acknowledged().is_some());
    });
}

#[test]
fn delivered_means_that_the_controller_has_it() {
    limit(60, || {
        let secret = Secret::generate().unwrap();
        // No beat comes by itself in time.
        let rare = Settings { beat: Duration::from_secs(3600), ..settings() };
        let controller = Controller::start_with(loopback(), &secret, rare.clone());
        let agent = Agent::start_with(&controller.address(), &secret, rare);
        agent.connected();
        controller.connected();
        for number in 0..500 {
            agent.connection.send(&format!("{number}")).unwrap();
        }
        assert!(agent.connection.delivered(super::PATIENCE));
        drop(agent);
        assert_eq!(controller.events.try_iter().count().min(500), 500);
    });
}
