//! What happens when one side goes, or does not come.

use std::net::{TcpListener, TcpStream};
use std::process::id;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::mpsc::{TryRecvError, channel};
use std::time::Duration;

use super::proxy::{Proxy, Way};
use super::raw::{Raw, run};
use super::{Agent, Controller, PATIENCE, assert_has, limit, loopback, pair, settings};
use crate::{Connection, Driver, FromController, Incoming, Listener, Secret, Settings, Unsent};

#[test]
fn an_agent_finds_a_controller_that_returns() {
    limit(60, || {
        let secret = Secret::generate().unwrap();
        let first = Controller::start(&secret);
        let address = first.listener.local_addr();
        let agent = Agent::start(&address.to_string(), &secret);
        agent.connected();
        drop(first);
        agent.disconnected();
        assert_eq!(agent.connection.send(&"lost".to_owned()), Err(Unsent::Away));
        match agent.next() {
            FromController::Unreachable { why } => assert_has(&why, "refused"),
            other => panic!("{other:?}"),
        }
        let second = Controller::start_with(address, &secret, settings());
        agent.connected();
        second.connected();
        agent.connection.send(&"here again".to_owned()).unwrap();
        assert_eq!(second.message(), "here again");
    });
}

#[test]
fn the_controller_notices_that_an_agent_is_gone() {
    limit(30, || {
        let (controller, agent, peer) = pair();
        drop(agent);
        controller.disconnected();
        assert_eq!(controller.listener.send(peer, &"too late".to_owned()), Err(Unsent::Away));
        assert_eq!(controller.listener.last_heard(), []);
    });
}

#[test]
fn both_sides_notice_silence() {
    limit(60, || {
        let secret = Secret::generate().unwrap();
        let attentive = Settings { silence: Duration::from_millis(300), ..settings() };
        let controller = Controller::start_with(loopback(), &secret, attentive.clone());
        let proxy = Proxy::start(&controller.address(), Way::default(), Way::default());
        let agent = Agent::start_with(&proxy.address, &secret, attentive);
        agent.connected();
        controller.connected();
        proxy.up.blocked.store(true, SeqCst);
        proxy.down.blocked.store(true, SeqCst);
        assert_has(&agent.disconnected(), "nothing was heard of the controller for");
        assert_has(&controller.disconnected(), "nothing was heard of it for");
    });
}

#[test]
fn an_agent_that_is_closed_is_told_why_after_all_else() {
    limit(60, || {
        let (controller, agent, peer) = pair();
        for number in 0..100 {
            controller.listener.send(peer, &format!("{number}")).unwrap();
        }
        controller.listener.close(peer, "another agent has this seat");
        assert_eq!(controller.listener.send(peer, &"more".to_owned()), Err(Unsent::Away));
        for number in 0..100 {
            assert_eq!(agent.message(), number.to_string());
        }
        assert_eq!(agent.disconnected(), "another agent has this seat");
        assert_has(&controller.disconnected(), "another agent has this seat");
        agent.connected();
        controller.connected();
    });
}

#[test]
fn a_listener_that_finishes_has_said_everything() {
    limit(60, || {
        let (controller, agent, _) = pair();
        controller.listener.send_all(&"the run is over".to_owned()).unwrap();
        assert!(controller.listener.finish("the run is over", PATIENCE));
        assert_eq!(agent.message(), "the run is over");
        assert_eq!(agent.disconnected(), "the run is over");
    });
}

#[test]
fn a_slow_agent_stops_nobody_else() {
    limit(120, || {
        let secret = Secret::generate().unwrap();
        let tight = Settings { queued_bytes: 4 << 20, ..settings() };
        let controller = Controller::start_with(loopback(), &secret, tight);
        let address = controller.address();
        // It takes the first frame and no other: bytes are moved for it, and nobody reads them.
        let (secret_of_slow, (done, wait)) = (secret.clone(), channel::<()>());
        let reading = std::thread::spawn(move || {
            run(async {
                let raw = Raw::known(&address, &secret_of_slow).await;
                while wait.try_recv() == Err(TryRecvError::Empty) {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                drop(raw);
            });
        });
        let slow = controller.connected();
        let agent = Agent::start(&controller.address(), &secret);
        let quick = controller.connected();
        agent.connected();
        let text = "x".repeat(512 << 10);
        for _ in 0..64 {
            controller.listener.send_all(&text).unwrap();
            assert!(agent.message() == text);
        }
        match controller.next() {
            Incoming::Disconnected { peer, why } if peer == slow => {
                assert_has(&why, "does not read")
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(controller.listener.last_heard()[0].0, quick);
        drop(done);
        reading.join().unwrap();
    });
}

#[test]
fn a_busy_port_is_an_error_that_says_who_has_it() {
    limit(30, || {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        let secret = Secret::generate().unwrap();
        let report = |_: Incoming<String>| {};
        let error = Listener::<String>::bind(address, secret, report).unwrap_err().to_string();
        assert_has(&error, &address.to_string());
        assert_has(&error, &format!("in use by process {} (", id()));
    });
}

#[test]
fn an_address_of_another_machine_is_an_error() {
    limit(30, || {
        let address = ([192, 0, 2, 1], 0).into();
        let report = |_: Incoming<String>| {};
        let error = Listener::<String>::bind(address, Secret::generate().unwrap(), report);
        assert_has(&error.unwrap_err().to_string(), "cannot listen on 192.0.2.1:0");
    });
}

#[test]
fn dropping_either_side_is_prompt() {
    limit(5, || {
        let (controller, agent, _) = pair();
        drop(controller);
        drop(agent);
    });
    limit(5, || {
        let (controller, agent, _) = pair();
        drop(agent);
        drop(controller);
    });
}

#[test]
fn a_connection_on_a_shared_driver_closes_its_socket() {
    limit(30, || {
        let secret = Secret::generate().unwrap();
        let controller = Controller::start(&secret);
        let driver = Arc::new(Driver::start("agents").unwrap());
        let report = |_: FromController<String>| {};
        let address = controller.address();
        let agent = Connection::<String>::open_on(&driver, &address, secret, settings(), report);
        controller.connected();
        drop(agent);
        controller.disconnected();
        drop(driver);
    });
}

#[test]
fn dropping_is_prompt_where_nobody_answers() {
    limit(15, || {
        // A socket that accepts nobody, whose queue is full: whoever comes now waits.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let full = runtime.block_on(async {
            let socket = tokio::net::TcpSocket::new_v4().unwrap();
            socket.bind(loopback()).unwrap();
            socket.listen(1).unwrap()
        });
        let address = full.local_addr().unwrap();
        let mut queued = Vec::new();
        while let Ok(one) = TcpStream::connect_timeout(&address, Duration::from_millis(200)) {
            queued.push(one);
        }
        drop(Agent::start(&address.to_string(), &Secret::generate().unwrap()));
    });
    limit(5, || {
        // A socket that accepts, and says nothing.
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = silent.local_addr().unwrap().to_string();
        let agent = Agent::start(&address, &Secret::generate().unwrap());
        let _stream = silent.accept().unwrap();
        drop(agent);
    });
    limit(5, || drop(Agent::start("no-such-name.invalid:80", &Secret::generate().unwrap())));
}

#[test]
fn dropping_does_not_wait_for_a_report_that_hangs() {
    limit(15, || {
        let secret = Secret::generate().unwrap();
        let (hang, hanging) = channel::<()>();
        let hanging = std::sync::Mutex::new(hanging);
        let (inside, begun) = channel();
        let report = move |_: Incoming<String>| {
            inside.send(()).unwrap();
            hanging.lock().unwrap().recv().unwrap_err();
        };
        let listener = Listener::<String>::bind(loopback(), secret.clone(), report).unwrap();
        let agent = Agent::start(&listener.local_addr().to_string(), &secret);
        begun.recv_timeout(PATIENCE).unwrap();
        drop(listener);
        drop(agent);
        drop(hang);
    });
}

#[test]
fn a_connection_that_breaks_in_the_handshake_is_tried_again() {
    limit(30, || {
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = silent.local_addr().unwrap();
        let secret = Secret::generate().unwrap();
        let agent = Agent::start(&address.to_string(), &secret);
        drop(silent.accept().unwrap());
        assert!(matches!(agent.next(), FromController::Unreachable { .. }));
        drop(silent);
        let controller = Controller::start_with(address, &secret, settings());
        controller.connected();
    });
}
